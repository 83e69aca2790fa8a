//! What is written: turns of an agent, with text that looks like text.

use transcript_redb::{
    MessageUsage, TranscriptMessage, TranscriptMeta, TranscriptToolCall, TurnUsage, UsageCostSource,
};

/// Records of a turn: a question, two calls with their results, an answer.
pub const RECORDS: usize = 6;

/// Bytes of text in each, on average; 2 KB over all.
const SIZES: [usize; RECORDS] = [400, 600, 4_800, 500, 4_500, 1_200];

/// Turns that one session gets while it is timed. It has [`PRELOADED`] rows before, so that it has 100 on average.
pub const TURNS_OF_A_SESSION: usize = 10;

/// Rows of a session before it is timed.
pub const PRELOADED: usize = 100 - RECORDS * TURNS_OF_A_SESSION / 2;

const WORDS: &str = "the of and to in is that for it with as was on be at by this from have or an they which one \
    were all there when can more if out so what up about into than them only some time could these two may then do \
    first any now such like other how its our over new even most made after also did many before must through years \
    where much your way well down should because each just those people how too little state good very make world \
    still own see men work long get here between both life being under never day same another know while last might \
    us great old year off come since against go came right used take three file function error test value return \
    request server result index search build token context harbour tide vessel weather forecast ledger invoice \
    schedule customer warehouse container temperature pressure reading sensor calibration report summary revision";

/// A random number generator that gives the same numbers in every run (`SplitMix64`).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("less than a usize")
    }
}

/// Sentences of common and less common words, the common ones more often.
fn text(random: &mut Random, bytes: usize) -> String {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let mut text = String::with_capacity(bytes + 16);
    let mut sentence = 0;
    while text.len() < bytes {
        let rank = random.below(words.len()).min(random.below(words.len()));
        let word = words[rank];
        if sentence == 0 {
            text.extend(word.chars().next().map(|first| first.to_ascii_uppercase()));
            text.push_str(&word[1..]);
        } else {
            text.push_str(word);
        }
        sentence += 1;
        if sentence > 6 + random.below(14) {
            text.push_str(if random.below(5) == 0 { ".\n" } else { ". " });
            sentence = 0;
        } else {
            text.push(' ');
        }
    }
    text
}

/// One turn of an agent.
pub struct Turn {
    pub number: usize,
    pub rows: Vec<TranscriptMessage>,
    pub usage: TurnUsage,
    pub request_id: String,
}

impl Turn {
    fn new(number: usize, random: &mut Random) -> Self {
        let mut sized = SIZES
            .iter()
            .map(|size| {
                let bytes = size / 2 + random.below(*size);
                text(random, bytes)
            })
            .collect::<Vec<_>>()
            .into_iter();
        let mut part = || sized.next().unwrap_or_default();
        let call = |step: usize| TranscriptToolCall {
            id: format!("call_{number}_{step}"),
            name: "search_files".to_owned(),
            arguments: format!(r#"{{"query":"harbour {step}","limit":{number}}}"#),
            extra_content: None,
        };
        let rows = vec![
            TranscriptMessage::user(part()),
            TranscriptMessage::assistant_with_calls(part(), vec![call(1)]),
            TranscriptMessage::tool_result(format!("call_{number}_1"), part()),
            TranscriptMessage::assistant_with_calls(part(), vec![call(2)]),
            TranscriptMessage::tool_result(format!("call_{number}_2"), part()),
            TranscriptMessage::assistant(part()),
        ];
        let input = 1_000 + number as u64;
        Self {
            number,
            rows,
            usage: TurnUsage {
                provider: "acme".to_owned(),
                model: "large-2".to_owned(),
                usage: MessageUsage {
                    input,
                    output: 400,
                    cached_input: 800,
                    context_window: 200_000,
                    cost_usd: 0.012,
                    last_call_input: input,
                    last_call_output: 400,
                    cost_source: Some(UsageCostSource::Charged),
                },
                ts: "2026-01-02T03:04:05Z".to_owned(),
                reasoning_content: None,
                tool_calls: Vec::new(),
                iteration: 3,
            },
            request_id: format!("request-{number}"),
        }
    }
}

/// Turns that differ, made before anything is timed.
pub fn turns(count: usize) -> Vec<Turn> {
    let mut random = Random(7);
    (0..count)
        .map(|number| Turn::new(number, &mut random))
        .collect()
}

/// The rows that a session has before it is timed.
pub fn preloaded(turns: &[Turn], session: usize) -> Vec<TranscriptMessage> {
    let rows = turns.iter().cycle().skip(session % turns.len());
    rows.flat_map(|turn| turn.rows.iter().cloned())
        .take(PRELOADED)
        .collect()
}

/// The header that a host writes with each turn.
pub fn meta(session: usize) -> TranscriptMeta {
    TranscriptMeta::new("planner")
        .with_agent_id(format!("agent-{}", session % 10))
        .with_thread_id(thread(session))
        .with_model("large-2")
        .with_provider("acme")
}

/// The thread of a session.
pub fn thread(session: usize) -> String {
    format!("thread-{session}")
}
