//! The running total of tokens, and what each step of it spent.

use serde_json::Value;

/// Tokens that were spent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tokens {
    pub(super) input: u64,
    pub(super) cached: u64,
    pub(super) output: u64,
}

/// The last total that was told.
#[derive(Debug, Default)]
pub(super) struct Running {
    last: Tokens,
    /// How often the total began anew.
    restarts: u32,
}

impl Running {
    /// What was spent since the last total, and by what that is known; None if the total did not change.
    pub(super) fn next(&mut self, total: &Value) -> Option<(String, Tokens)> {
        let count = |key: &str| total.get(key).and_then(Value::as_u64).unwrap_or_default();
        let total = Tokens {
            input: count("input_tokens"),
            cached: count("cached_input_tokens"),
            output: count("output_tokens"),
        };
        let last = std::mem::replace(&mut self.last, total);
        if total == last {
            return None;
        }
        let since = || {
            Some(Tokens {
                input: total.input.checked_sub(last.input)?,
                cached: total.cached.checked_sub(last.cached)?,
                output: total.output.checked_sub(last.output)?,
            })
        };
        let spent = match since() {
            Some(spent) => spent,
            None => {
                self.restarts += 1;
                total
            }
        };
        if spent == Tokens::default() {
            return None;
        }
        let key = format!(
            "{} {} {} {}",
            self.restarts, total.input, total.cached, total.output
        );
        Some((key, spent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_increases_are_spent_and_a_smaller_total_begins_anew() {
        let mut running = Running::default();
        let mut spent = |input: u64, output: u64| {
            let total = json!({"input_tokens": input, "output_tokens": output});
            running
                .next(&total)
                .map(|(_, spent)| (spent.input, spent.output))
        };
        assert_eq!(spent(10, 1), Some((10, 1)));
        assert_eq!(spent(10, 1), None);
        assert_eq!(spent(15, 2), Some((5, 1)));
        assert_eq!(spent(4, 1), Some((4, 1)));
        assert_eq!(spent(0, 0), None);
        assert_eq!(spent(4, 1), Some((4, 1)));
    }

    #[test]
    fn the_same_total_after_a_restart_is_another_call() {
        let mut running = Running::default();
        let total = json!({"input_tokens": 10, "output_tokens": 1});
        let first = running.next(&total).unwrap();
        assert_eq!(running.next(&json!({"input_tokens": 0})), None);
        let second = running.next(&total).unwrap();
        assert_ne!(first.0, second.0);
        assert_eq!(first.1, second.1);
    }
}
