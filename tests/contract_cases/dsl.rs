//! The words in which the cases are written. A case is data: the calls in order and what the store then shows.

use std::rc::Rc;

use serde_json::Value;
use transcript_redb::{
    BackgroundAppendOutcome, ErrorKind, MessageUsage, ToolFailure, TranscriptMessage,
    TranscriptPartial, TranscriptToolCall, TruncateCut, TurnUsage, UsageCostSource,
};

/// One rule of the contract, played from an empty store.
#[derive(Default)]
pub struct Case {
    pub name: &'static str,
    pub steps: Vec<Step>,
    /// The display of each generation, by the lines of `render`.
    pub displays: Vec<Vec<&'static str>>,
    /// The live context of the newest written generation: `#1 #3`.
    pub context: &'static str,
    /// Spend of that context, and of the thread.
    pub live: &'static str,
    pub thread: &'static str,
    pub tools: Option<Value>,
}

/// One call and how it has to end.
pub struct Step {
    pub act: Act,
    pub refused: Option<ErrorKind>,
}

pub enum Act {
    Turn(Box<Turn>),
    Append(Row),
    Replace(Vec<Row>),
    Clear,
    Background(Box<Background>),
    /// `begin_generation`, or `begin_generation_from_baseline` with a baseline.
    Begin(Option<Vec<Row>>),
    /// `open_session` of the generation after the head.
    OpenNext,
    Truncate(TruncateCut),
    /// The calls after it go to a handle on this generation.
    To(u32),
    /// `append_interrupted_partial` to the thread.
    Partial(TranscriptPartial, Option<&'static str>),
    /// Keeps the context as it is read now, for `remembered`.
    Remember,
}

pub struct Turn {
    /// What the caller believes is stored; what it just read where None.
    pub prev: Option<Vec<Row>>,
    pub next: Vec<Row>,
    pub usage: Option<TurnUsage>,
    pub request: Option<&'static str>,
    pub tools: Option<Value>,
    pub compaction: Option<Value>,
    pub partial: Option<TranscriptPartial>,
}

pub struct Background {
    pub row: Row,
    pub key: &'static str,
    pub provenance: Value,
    pub expected_generation: Option<u32>,
    pub outcome: BackgroundAppendOutcome,
}

/// A case named by its rule, with nothing expected yet: a display without records and an empty context.
pub fn case(name: &'static str) -> Case {
    Case {
        name,
        live: "nothing",
        thread: "nothing",
        ..Case::default()
    }
}

/// Rows for one call.
pub type Rows<const N: usize> = [Row; N];

impl Case {
    fn act(mut self, act: Act) -> Self {
        self.steps.push(Step { act, refused: None });
        self
    }

    fn last_turn(&mut self) -> &mut Turn {
        match self.steps.last_mut().map(|step| &mut step.act) {
            Some(Act::Turn(turn)) => turn,
            _ => panic!("{}: the step before is no turn", self.name),
        }
    }

    fn last_background(&mut self) -> &mut Background {
        match self.steps.last_mut().map(|step| &mut step.act) {
            Some(Act::Background(background)) => background,
            _ => panic!("{}: the step before is no background append", self.name),
        }
    }

    /// `append_turn` on what is stored.
    pub fn turn<const N: usize>(self, next: Rows<N>) -> Self {
        self.act(Act::Turn(Box::new(Turn {
            prev: None,
            next: next.into(),
            usage: None,
            request: None,
            tools: None,
            compaction: None,
            partial: None,
        })))
    }

    /// The baseline of the turn before, instead of what is stored.
    pub fn on<const N: usize>(mut self, prev: Rows<N>) -> Self {
        self.last_turn().prev = Some(prev.into());
        self
    }

    pub fn usage(mut self, usage: Usage) -> Self {
        self.last_turn().usage = Some(usage.0);
        self
    }

    pub fn request(mut self, request: &'static str) -> Self {
        self.last_turn().request = Some(request);
        self
    }

    pub fn with_tools(mut self, tools: Value) -> Self {
        self.last_turn().tools = Some(tools);
        self
    }

    pub fn known(mut self, compaction: Value) -> Self {
        self.last_turn().compaction = Some(compaction);
        self
    }

    pub fn partial(mut self, partial: TranscriptPartial) -> Self {
        self.last_turn().partial = Some(partial);
        self
    }

    pub fn append(self, row: Row) -> Self {
        self.act(Act::Append(row))
    }

    pub fn replace<const N: usize>(self, rows: Rows<N>) -> Self {
        self.act(Act::Replace(rows.into()))
    }

    pub fn clear(self) -> Self {
        self.act(Act::Clear)
    }

    pub fn begin(self) -> Self {
        self.act(Act::Begin(None))
    }

    pub fn begin_on<const N: usize>(self, baseline: Rows<N>) -> Self {
        self.act(Act::Begin(Some(baseline.into())))
    }

    pub fn open_next(self) -> Self {
        self.act(Act::OpenNext)
    }

    pub fn to(self, generation: u32) -> Self {
        self.act(Act::To(generation))
    }

    pub fn truncate(self, cut: TruncateCut) -> Self {
        self.act(Act::Truncate(cut))
    }

    pub fn interrupted(self, partial: TranscriptPartial, request: Option<&'static str>) -> Self {
        self.act(Act::Partial(partial, request))
    }

    pub fn remember(self) -> Self {
        self.act(Act::Remember)
    }

    /// `append_background` to the session, which has to answer `Appended { generation: 0 }` unless another answer is
    /// named.
    pub fn background(self, key: &'static str, row: Row) -> Self {
        self.act(Act::Background(Box::new(Background {
            row,
            key,
            provenance: Value::Null,
            expected_generation: None,
            outcome: BackgroundAppendOutcome::Appended { generation: 0 },
        })))
    }

    pub fn from(mut self, provenance: Value) -> Self {
        self.last_background().provenance = provenance;
        self
    }

    pub fn expecting(mut self, generation: u32) -> Self {
        self.last_background().expected_generation = Some(generation);
        self
    }

    pub fn answers(mut self, outcome: BackgroundAppendOutcome) -> Self {
        self.last_background().outcome = outcome;
        self
    }

    /// The step before has to be refused with `kind` and to change nothing.
    pub fn refused(mut self, kind: ErrorKind) -> Self {
        let step = self.steps.last_mut().expect("a step was named");
        step.refused = Some(kind);
        self
    }

    /// The display of the first generation, or of the next one where that was named already.
    pub fn shows<const N: usize>(mut self, lines: [&'static str; N]) -> Self {
        self.displays.push(lines.into());
        self
    }

    pub fn context(mut self, context: &'static str) -> Self {
        self.context = context;
        self
    }

    /// Spend, where the live context and the thread agree.
    pub fn spend(self, spend: &'static str) -> Self {
        self.live(spend).thread(spend)
    }

    pub fn live(mut self, spend: &'static str) -> Self {
        self.live = spend;
        self
    }

    pub fn thread(mut self, spend: &'static str) -> Self {
        self.thread = spend;
        self
    }

    pub fn tools(mut self, tools: Value) -> Self {
        self.tools = Some(tools);
        self
    }
}

/// A row that a call is given.
#[derive(Clone)]
pub struct Row {
    pub source: Source,
    edits: Vec<Edit>,
}

type Edit = Rc<dyn Fn(&mut TranscriptMessage)>;

#[derive(Clone)]
pub enum Source {
    New(Box<TranscriptMessage>),
    /// The row at this place of the live context, as it was read just before the call.
    Kept(usize),
    /// The row at this place of the context that was remembered.
    Remembered(usize),
}

fn new(message: TranscriptMessage) -> Row {
    Row {
        source: Source::New(Box::new(message)),
        edits: Vec::new(),
    }
}

pub fn s(text: &str) -> Row {
    new(TranscriptMessage::system(text))
}

pub fn u(text: &str) -> Row {
    new(TranscriptMessage::user(text))
}

pub fn a(text: &str) -> Row {
    new(TranscriptMessage::assistant(text))
}

/// The result of the call `c`.
pub fn t(text: &str) -> Row {
    new(TranscriptMessage::tool_result("c", text))
}

/// An assistant row that issues the call `c`.
pub fn calls(text: &str) -> Row {
    let call = TranscriptToolCall {
        id: "c".into(),
        name: "f".into(),
        arguments: "{}".into(),
        extra_content: None,
    };
    new(TranscriptMessage::assistant_with_calls(text, vec![call]))
}

/// A row of any role.
pub fn other(role: &str, text: &str) -> Row {
    new(TranscriptMessage::new(role, text))
}

fn from(source: Source) -> Row {
    Row {
        source,
        edits: Vec::new(),
    }
}

pub fn kept(place: usize) -> Row {
    from(Source::Kept(place))
}

pub fn remembered(place: usize) -> Row {
    from(Source::Remembered(place))
}

impl Row {
    fn edit(mut self, edit: impl Fn(&mut TranscriptMessage) + 'static) -> Self {
        self.edits.push(Rc::new(edit));
        self
    }

    pub fn edited(&self, mut message: TranscriptMessage) -> TranscriptMessage {
        for edit in &self.edits {
            edit(&mut message);
        }
        message
    }

    pub fn says(self, text: &'static str) -> Self {
        self.edit(move |row| row.content = text.into())
    }

    pub fn id(self, id: &'static str) -> Self {
        self.edit(move |row| row.id = Some(id.into()))
    }

    /// A request id that the row does not claim.
    pub fn req(self, id: &'static str) -> Self {
        self.edit(move |row| row.request_id = Some(id.into()))
    }

    /// A request id that is authoritative.
    pub fn claims(self, id: &'static str) -> Self {
        self.req(id).edit(|row| row.preserve_request_id = true)
    }

    /// No request id, and that is authoritative.
    pub fn claims_none(self) -> Self {
        self.edit(|row| {
            row.request_id = None;
            row.preserve_request_id = true;
        })
    }

    /// As if the host had built the row itself.
    pub fn fresh(self) -> Self {
        self.edit(|row| row.preserve_request_id = false)
    }

    pub fn used(self, usage: Usage) -> Self {
        self.edit(move |row| row.turn_usage = Some(usage.0.clone()))
    }

    pub fn without_usage(self) -> Self {
        self.edit(|row| row.turn_usage = None)
    }

    pub fn meta(self, metadata: Value) -> Self {
        self.edit(move |row| row.extra_metadata = Some(metadata.clone()))
    }

    pub fn breaks(self, places: &'static [usize]) -> Self {
        self.edit(move |row| row.cache_breakpoints = places.into())
    }

    /// As if the host had been interrupted.
    pub fn cut(self) -> Self {
        self.edit(|row| row.interrupted = true)
    }

    /// A failure that says that nothing failed.
    pub fn did_not_fail(self) -> Self {
        self.edit(|row| row.tool_failure = Some(ToolFailure::default().with_detail("none")))
    }

    pub fn fails(self, detail: &'static str) -> Self {
        self.edit(move |row| row.tool_failure = Some(ToolFailure::failed().with_detail(detail)))
    }
}

/// A usage under construction.
#[derive(Clone)]
pub struct Usage(pub TurnUsage);

/// Tokens in and out at no cost, of which it is not known who says so.
pub fn used(input: u64, output: u64) -> Usage {
    Usage(TurnUsage {
        usage: MessageUsage {
            input,
            output,
            ..MessageUsage::default()
        },
        ..TurnUsage::default()
    })
}

/// Tokens in and out that the provider billed.
pub fn charged(input: u64, output: u64, cost: f64) -> Usage {
    used(input, output).cost(cost, Some(UsageCostSource::Charged))
}

impl Usage {
    pub fn cost(mut self, cost: f64, source: Option<UsageCostSource>) -> Self {
        self.0.usage.cost_usd = cost;
        self.0.usage.cost_source = source;
        self
    }

    pub fn cached(mut self, tokens: u64) -> Self {
        self.0.usage.cached_input = tokens;
        self
    }

    pub fn last_call(mut self, input: u64, output: u64) -> Self {
        self.0.usage.last_call_input = input;
        self.0.usage.last_call_output = output;
        self
    }

    pub fn window(mut self, tokens: u64) -> Self {
        self.0.usage.context_window = tokens;
        self
    }

    pub fn model(mut self, model: &str) -> Self {
        self.0.model = model.into();
        self
    }

    pub fn step(mut self, iteration: u32) -> Self {
        self.0.iteration = iteration;
        self
    }

    pub fn at(mut self, ts: &str) -> Self {
        self.0.ts = ts.into();
        self
    }

    pub fn thinking(mut self, reasoning: &str) -> Self {
        self.0.reasoning_content = Some(reasoning.into());
        self
    }

    pub fn calling(mut self) -> Self {
        self.0.tool_calls = vec![TranscriptToolCall::default()];
        self
    }
}

/// A partial text.
pub fn half(text: &str) -> TranscriptPartial {
    TranscriptPartial::new(text)
}
