//! Every way to sum spend, against sums over all usages.

use std::collections::{BTreeMap, BTreeSet};

use transcript_redb::{SpendGroup, SpendQuery, SpendRow, TurnUsage, UsageCostSource};

use super::diff::{Checked, same};
use super::pair::{Pair, read};
use super::recount::{self, Event};
use super::rng::Rng;
use super::stems::{base_of, stem_of};
use super::values::TIMES;
use super::world::THREADS;

/// Queries at the end of each sequence.
const QUERIES: usize = 12;

impl Pair {
    /// Asks for sums in random ways.
    pub fn check_spend(&mut self) -> Checked {
        let counted = self.counted()?;
        for _ in 0..QUERIES {
            let query = self.spend_query();
            let found = read("spend", self.store.spend(&query))?;
            let expected = sums(&counted, &query);
            same(&format!("{query:?}"), &expected, &found)?;
        }
        Ok(())
    }

    /// Every usage of the store, with what it is summed by.
    fn counted(&self) -> Checked<Vec<Counted>> {
        let mut all = Vec::new();
        for base in self.written_bases() {
            let thread = self.thread_of(&base)?.unwrap_or_default();
            let mut counted = BTreeSet::new();
            for generation in 0..self.chain_of(&base) {
                let display = self
                    .display(&stem_of(&base, generation))?
                    .expect("it is written");
                for Event { uuid, usage } in recount::events(&display, &mut counted) {
                    let recorded = &self.recorded[&uuid];
                    let hour = match hour_of(&usage.ts) {
                        Some(hour) => hour,
                        None => hour_of(&self.written_at[&uuid]).expect("a time of writing"),
                    };
                    all.push(Counted {
                        thread: thread.to_owned(),
                        thread_then: recorded.thread.clone(),
                        session: base.clone(),
                        agent: recorded.agent.clone(),
                        hour,
                        usage,
                    });
                }
            }
        }
        Ok(all)
    }

    fn spend_query(&mut self) -> SpendQuery {
        use SpendGroup::{Agent, Day, Hour, Model, Provider, Session, Source, Thread};
        let rng = &mut self.rng;
        let mut group_by: Vec<_> = [Thread, Session, Agent, Provider, Model, Source, Hour, Day]
            .into_iter()
            .filter(|_| rng.percent(30))
            .collect();
        if group_by.contains(&Hour) {
            // Both name the same column.
            group_by.retain(|group| *group != Day);
        }
        if group_by.len() > 1 {
            let (a, b) = (rng.below(group_by.len()), rng.below(group_by.len()));
            group_by.swap(a, b);
        }
        let text = |choices: &[&str], rng: &mut Rng| {
            rng.percent(15).then(|| (*rng.pick(choices)).to_owned())
        };
        let hour = |rng: &mut Rng| {
            let hour = hour_of(TIMES[rng.within(1..6)]).expect("a time");
            rng.percent(12).then_some(hour + [0, 0, 1][rng.below(3)])
        };
        SpendQuery {
            thread: text(&THREADS, rng),
            session: rng
                .percent(15)
                .then(|| rng.pick(&self.world.sessions).clone()),
            agent: text(&["orch", "worker", "", "nobody"], rng),
            provider: text(&["p1", "p2", ""], rng),
            model: text(&["m1", "m2", ""], rng),
            since_hour: hour(rng),
            until_hour: hour(rng),
            group_by,
        }
    }
}

/// A usage with what it is summed by.
#[derive(Debug)]
struct Counted {
    thread: String,
    thread_then: String,
    session: String,
    agent: String,
    hour: i64,
    usage: TurnUsage,
}

/// The UTC hour of a time, counted from the epoch.
fn hour_of(ts: &str) -> Option<i64> {
    let time: jiff::Timestamp = ts.parse().ok()?;
    Some(
        time.as_nanosecond()
            .div_euclid(3_600_000_000_000)
            .try_into()
            .expect("an hour"),
    )
}

/// The names of a group, in the order in which they were asked for: a text, or a number.
type Key = Vec<(String, i64)>;

/// The answer to a query, from all usages.
fn sums(counted: &[Counted], query: &SpendQuery) -> Vec<SpendRow> {
    let by = |group| query.group_by.contains(&group);
    let timed = query.since_hour.is_some()
        || query.until_hour.is_some()
        || by(SpendGroup::Hour)
        || by(SpendGroup::Day);
    let session = query.session.as_ref().map(base_of);
    let fits =
        |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|it| it == found);
    let mut groups: BTreeMap<Key, (SpendRow, i128)> = BTreeMap::new();
    for it in counted {
        let thread = if timed { &it.thread_then } else { &it.thread };
        let accepted = query
            .thread
            .as_deref()
            .is_none_or(|wanted| wanted.trim() == thread)
            && fits(&session, &it.session)
            && fits(&query.agent, &it.agent)
            && fits(&query.provider, &it.usage.provider)
            && fits(&query.model, &it.usage.model)
            && query.since_hour.is_none_or(|since| it.hour >= since)
            && query.until_hour.is_none_or(|until| it.hour < until);
        if !accepted {
            continue;
        }
        let mut row = SpendRow::default();
        let mut key = Key::new();
        for group in &query.group_by {
            let (column, text) = match group {
                SpendGroup::Thread => (&mut row.thread, thread),
                SpendGroup::Session => (&mut row.session, &it.session),
                SpendGroup::Agent => (&mut row.agent, &it.agent),
                SpendGroup::Provider => (&mut row.provider, &it.usage.provider),
                SpendGroup::Model => (&mut row.model, &it.usage.model),
                SpendGroup::Source => {
                    let source = it.usage.usage.cost_source;
                    row.source = Some(source);
                    key.push((String::new(), rank(source)));
                    continue;
                }
                group => {
                    let day = *group == SpendGroup::Day;
                    let hour = if day {
                        it.hour.div_euclid(24) * 24
                    } else {
                        it.hour
                    };
                    row.hour = Some(hour);
                    key.push((String::new(), hour));
                    continue;
                }
            };
            *column = Some(text.clone());
            key.push((text.clone(), 0));
        }
        let (sum, cost) = groups.entry(key).or_insert((row, 0));
        let totals = &it.usage.usage;
        sum.turns += 1;
        sum.input_tokens = sum.input_tokens.saturating_add(totals.input);
        sum.output_tokens = sum.output_tokens.saturating_add(totals.output);
        sum.cached_input_tokens = sum.cached_input_tokens.saturating_add(totals.cached_input);
        *cost += recount::units(totals.cost_usd);
    }
    groups
        .into_values()
        .map(|(row, cost)| SpendRow {
            cost_usd: recount::usd(cost),
            ..row
        })
        .collect()
}

/// No source comes first.
fn rank(source: Option<UsageCostSource>) -> i64 {
    match source {
        None => 0,
        Some(UsageCostSource::Charged) => 1,
        Some(UsageCostSource::Estimated) => 2,
        Some(UsageCostSource::Unknown) => 3,
    }
}
