//! Invented text of any length, the same in every run.

const WORDS: [&str; 32] = [
    "harbour",
    "tide",
    "vessel",
    "weather",
    "forecast",
    "ledger",
    "invoice",
    "schedule",
    "customer",
    "warehouse",
    "container",
    "pressure",
    "reading",
    "sensor",
    "report",
    "summary",
    "revision",
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "for",
    "with",
    "as",
    "was",
    "on",
    "at",
    "by",
    "from",
];

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Makes text.
pub struct Text(u64);

impl Text {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Words and numbers, `len` bytes of them.
    pub fn exactly(&mut self, len: usize) -> String {
        let mut text = String::with_capacity(len + 16);
        while text.len() < len {
            let number = self.number();
            text.push_str(WORDS[usize::try_from(number % 32).unwrap()]);
            if number.is_multiple_of(7) {
                text.push(' ');
                text.push_str(&((number >> 32) % 10_000).to_string());
            }
            text.push_str(if number.is_multiple_of(13) {
                ".\n"
            } else {
                " "
            });
        }
        text.truncate(len);
        text
    }

    /// What looks like base64 of an image: it cannot be packed by much.
    pub fn noise(&mut self, len: usize) -> String {
        (0..len)
            .map(|_| char::from(BASE64[usize::try_from(self.number() >> 58).unwrap()]))
            .collect()
    }
}
