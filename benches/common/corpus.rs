//! The text that is written: real transcripts where they are at hand, invented sentences where they are not.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rand::{Rng, RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::Value;

/// Names a folder of transcripts (JSON or JSON lines) to take the text from.
const VARIABLE: &str = "TRANSCRIPT_CORPUS";

/// Strings below this many bytes are names and numbers, not text.
const SHORTEST: usize = 80;

const WORDS: &str = "the of and to in is that for it with as was on be at by this from have or an they which one \
    were all there when can more if out so what up about into than them only some time could these two may then do \
    first any now such like other how its our over new even most made after also did many before must through years \
    where much your way well down should because each just those people how too little state good very make world \
    still own see men work long get here between both life being under never day same another know while last might \
    us great old year off come since against go came right used take three file function error test value return \
    request server result index search build token context harbour tide vessel weather forecast ledger invoice \
    schedule customer warehouse container temperature pressure reading sensor calibration report summary revision";

/// Text to cut pieces from.
pub struct Text {
    pool: String,
    /// Where it comes from, for the report.
    pub source: String,
}

impl Text {
    /// Real text from the corpus folder beside the repository, or from the one that the variable names.
    pub fn load() -> &'static Self {
        static TEXT: OnceLock<Text> = OnceLock::new();
        TEXT.get_or_init(Self::gathered)
    }

    fn gathered() -> Self {
        let folder = std::env::var_os(VARIABLE).map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus"),
            PathBuf::from,
        );
        let mut pool = String::new();
        gather(&folder, &mut pool);
        if pool.len() < 1 << 20 {
            return Self::invented();
        }
        let source = format!("{} KB of text of real transcripts", pool.len() / 1_000);
        Self { pool, source }
    }

    /// Sentences of common and less common words, the common ones more often.
    fn invented() -> Self {
        let random = &mut StdRng::seed_from_u64(7);
        let words: Vec<&str> = WORDS.split_whitespace().collect();
        let mut pool = String::new();
        while pool.len() < 4 << 20 {
            let length = random.random_range(6..20);
            let sentence: Vec<&str> = (0..length)
                .map(|_| {
                    let rank = random.random_range(0..words.len());
                    words[rank.min(random.random_range(0..words.len()))]
                })
                .collect();
            pool.push_str(&sentence.join(" "));
            pool.push_str(if random.random_bool(0.2) { ".\n" } else { ". " });
        }
        let source = format!("INVENTED sentences: no transcripts found (set {VARIABLE})");
        Self { pool, source }
    }

    /// Some text of this length, more or less a character: from any place, so that no two pieces are equal.
    pub fn piece(&self, random: &mut impl Rng, bytes: usize) -> String {
        let mut piece = String::with_capacity(bytes + 4);
        let mut start = random.random_range(0..self.pool.len());
        while piece.len() < bytes {
            let first = self.boundary(start);
            let end = self.boundary((first + bytes - piece.len()).min(self.pool.len()));
            piece.push_str(&self.pool[first..end]);
            start = 0;
        }
        piece
    }

    fn boundary(&self, mut place: usize) -> usize {
        while !self.pool.is_char_boundary(place) {
            place += 1;
        }
        place
    }
}

/// Adds the text of every file below a folder, in the order of their names.
fn gather(folder: &Path, pool: &mut String) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            gather(&path, pool);
        } else if let Ok(text) = fs::read_to_string(&path) {
            match serde_json::from_str(&text) {
                Ok(value) => strings(&value, pool),
                Err(_) => {
                    for value in text.lines().flat_map(serde_json::from_str) {
                        strings(&value, pool);
                    }
                }
            }
        }
    }
}

fn strings(value: &Value, pool: &mut String) {
    match value {
        Value::String(text) if text.len() >= SHORTEST => {
            // Encoded images and the like have no spaces.
            let spaces = text.bytes().filter(u8::is_ascii_whitespace).count();
            if spaces * 30 >= text.len() {
                pool.push_str(text);
                pool.push('\n');
            }
        }
        Value::Array(values) => values.iter().for_each(|value| strings(value, pool)),
        Value::Object(values) => values.values().for_each(|value| strings(value, pool)),
        _ => {}
    }
}
