//! Calls of a provider, of which many lines and files tell: each counts once.

use std::collections::{BTreeMap, HashMap};

use super::fact::CallId;

/// What one call cost, as far as sums go.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CallCost {
    /// Tokens of the output.
    pub output: u64,
    /// Tokens of the input, cached ones included.
    pub input: u64,
    /// Those that came from the cache.
    pub cached_input: u64,
    /// Those that were written to the cache.
    pub cache_write: u64,
    /// US dollars.
    pub cost_usd: f64,
}

impl CallCost {
    /// Whether this one counts rather than `other`: the larger output, and on ties the larger of what else differs, so
    /// that it makes no difference which was met first.
    #[must_use]
    pub fn outweighs(&self, other: &Self) -> bool {
        let counts = |it: &Self| (it.output, it.input, it.cached_input, it.cache_write);
        counts(self)
            .cmp(&counts(other))
            .then(self.cost_usd.total_cmp(&other.cost_usd))
            .is_gt()
    }

    fn take(slot: &mut Option<Self>, cost: Self) {
        if slot.is_none_or(|held| cost.outweighs(&held)) {
            *slot = Some(cost);
        }
    }
}

/// All that was told under one message id, or under one key.
#[derive(Debug, Clone, Default)]
struct Group {
    /// By records that name no request.
    unnamed: Option<CallCost>,
    by_request: BTreeMap<String, Option<CallCost>>,
}

impl Group {
    /// What counts: the largest of each request. What names no request is of the request that it is nearest to in
    /// size, the largest, as records of one response differ in whether they name it.
    fn sum(&self) -> CallCost {
        let mut calls: Vec<CallCost> = self.by_request.values().copied().flatten().collect();
        let largest = calls
            .iter_mut()
            .reduce(|a, b| if b.outweighs(a) { b } else { a });
        match (largest, self.unnamed) {
            (Some(largest), Some(unnamed)) if unnamed.outweighs(largest) => *largest = unnamed,
            (None, Some(unnamed)) => calls.push(unnamed),
            _ => {}
        }
        calls
            .into_iter()
            .fold(CallCost::default(), |sum, call| CallCost {
                output: sum.output.saturating_add(call.output),
                input: sum.input.saturating_add(call.input),
                cached_input: sum.cached_input.saturating_add(call.cached_input),
                cache_write: sum.cache_write.saturating_add(call.cache_write),
                cost_usd: sum.cost_usd + call.cost_usd,
            })
    }
}

/// The calls that were told of so far.
#[derive(Debug, Clone, Default)]
pub struct CallBook {
    messages: HashMap<String, Group>,
    others: HashMap<CallId, Group>,
}

impl CallBook {
    /// Notes what one record tells of a call.
    pub fn note(&mut self, id: &CallId, cost: CallCost) {
        match id {
            CallId::Message { id, request } => {
                let group = self.messages.entry(id.clone()).or_default();
                match request {
                    Some(request) => {
                        let slot = group.by_request.entry(request.clone()).or_default();
                        CallCost::take(slot, cost);
                    }
                    None => CallCost::take(&mut group.unnamed, cost),
                }
            }
            id => CallCost::take(
                &mut self.others.entry(id.clone()).or_default().unnamed,
                cost,
            ),
        }
    }

    /// How many message ids were met.
    #[must_use]
    pub fn message_ids(&self) -> u64 {
        self.messages.len() as u64
    }

    /// What all calls cost together.
    #[must_use]
    pub fn sum(&self) -> CallCost {
        let groups = self.messages.values().chain(self.others.values());
        groups
            .map(Group::sum)
            .fold(CallCost::default(), |sum, call| CallCost {
                output: sum.output.saturating_add(call.output),
                input: sum.input.saturating_add(call.input),
                cached_input: sum.cached_input.saturating_add(call.cached_input),
                cache_write: sum.cache_write.saturating_add(call.cache_write),
                cost_usd: sum.cost_usd + call.cost_usd,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, request: Option<&str>) -> CallId {
        CallId::Message {
            id: id.to_owned(),
            request: request.map(str::to_owned),
        }
    }

    fn output(output: u64) -> CallCost {
        CallCost {
            output,
            ..CallCost::default()
        }
    }

    #[test]
    fn a_call_counts_once_by_its_largest_output_in_any_order() {
        let told = [
            (message("a", Some("1")), 5),
            (message("a", Some("1")), 9),
            (message("a", None), 7),
            (message("a", Some("2")), 1),
            (message("b", None), 3),
            (message("b", None), 2),
            (CallId::Key("k".to_owned()), 4),
            (CallId::Key("k".to_owned()), 4),
        ];
        for turn in 0..told.len() {
            let mut book = CallBook::default();
            for at in 0..told.len() {
                let (id, size) = &told[(turn + at * 3) % told.len()];
                book.note(id, output(*size));
            }
            assert_eq!(book.sum().output, 9 + 1 + 3 + 4);
            assert_eq!(book.message_ids(), 2);
        }
    }

    #[test]
    fn a_record_without_a_request_is_of_the_largest_that_has_one() {
        let mut book = CallBook::default();
        book.note(&message("a", None), output(20));
        book.note(&message("a", Some("1")), output(5));
        book.note(&message("a", Some("2")), output(6));
        assert_eq!(book.sum().output, 20 + 5);
    }
}
