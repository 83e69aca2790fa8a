//! `spend`: tokens and cost, and where the cost is known from.

use std::collections::{BTreeMap, HashMap};

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use transcript_redb::{SpendGroup, SpendQuery, SpendRow, Store, UsageCostSource};

use crate::args::{By, Database, Spend, usage};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::select;
use crate::table::Table;
use crate::text::{Decimals, count, dollars, many, source_name};

const SECONDS_AN_HOUR: i64 = 3600;

/// `spend`
pub fn run(database: &Database, args: &Spend, output: &mut Output) -> Result<Outcome, Failure> {
    let zone = output.zone().clone();
    let query = SpendQuery {
        thread: args.thread.clone(),
        since_hour: hour_of(args.since.as_deref(), &zone, false)?,
        until_hour: hour_of(args.until.as_deref(), &zone, true)?,
        ..SpendQuery::default()
    };
    let store = database.read()?;
    let mut by = args.by.clone();
    let mut seen = Vec::new();
    by.retain(|it| {
        let new = !seen.contains(it);
        seen.push(*it);
        new
    });
    if args.output.json {
        for line in lines(&store, &query, &by, &TimeZone::UTC)? {
            output.json(&line.json(&by))?;
        }
        return Ok(Outcome::Done);
    }
    let mut lines = lines(&store, &query, &by, &zone)?;
    let total = self::lines(&store, &query, &[], &zone)?;
    let Some(total) = total.into_iter().next() else {
        output.line("Nothing was spent.")?;
        return Ok(Outcome::Done);
    };
    if by.contains(&By::Session) {
        name_sessions(&store, &by, &mut lines, output)?;
    }
    print(&by, &lines, &total, output)?;
    Ok(Outcome::Done)
}

/// Sessions by the names that other commands give them.
fn name_sessions(
    store: &Store,
    by: &[By],
    lines: &mut [Line],
    output: &Output,
) -> Result<(), Failure> {
    let all = select::all(store)?;
    let handles = select::handles(&all, &all, output.columns().is_none());
    let stems = all.iter().map(select::base);
    let names: HashMap<&str, String> = stems.zip(handles).collect();
    for line in lines {
        let groups = by.iter().zip(&mut line.names);
        for (_, name) in groups.filter(|(by, _)| **by == By::Session) {
            if let Some(handle) = names.get(name.as_str()) {
                name.clone_from(handle);
            }
        }
    }
    Ok(())
}

fn print(by: &[By], lines: &[Line], total: &Line, output: &mut Output) -> Result<(), Failure> {
    let mut headings: Vec<&'static str> = by.iter().map(|by| heading(*by)).collect();
    if headings.is_empty() {
        headings.push("");
    }
    let names = headings.len();
    // Only imports know what was written to a cache.
    let written = total.written > 0;
    headings.extend(["TURNS", "INPUT", "CACHED"]);
    headings.extend(written.then_some("TO CACHE"));
    headings.extend(["OUTPUT", "CHARGED", "ESTIMATED", "UNPRICED"]);
    let last = headings.len() - 1;
    let numbers: Vec<usize> = (names..last).collect();
    let elastic: Vec<usize> = (0..names).chain([last]).collect();
    // Kinds of cost that there are none of go first.
    let mut spare = Vec::new();
    spare.extend((total.charged == 0.0).then_some(last - 2));
    spare.extend((total.estimated == 0.0).then_some(last - 1));
    spare.extend(written.then_some(names + 3));
    spare.push(names + 2);
    let mut table = Table::new(&headings, &numbers, &elastic).spare(&spare);
    let all = || lines.iter().chain([total]);
    let money = Money {
        charged: Decimals::of(all().map(|line| line.charged)),
        estimated: Decimals::of(all().map(|line| line.estimated)),
    };
    if !by.is_empty() {
        for line in lines {
            let mut line = line.clone();
            for name in line.names.iter_mut().filter(|name| name.is_empty()) {
                "(none)".clone_into(name);
            }
            table.row(line.cells(written, money));
        }
    }
    let mut total = total.clone();
    total.names = vec![String::new(); names];
    if let Some(name) = total.names.first_mut() {
        "total".clone_into(name);
    }
    table.row(total.cells(written, money));
    table.print(output)?;
    Ok(())
}

/// The decimals of the columns of money.
#[derive(Clone, Copy, Debug)]
struct Money {
    charged: Decimals,
    estimated: Decimals,
}

/// One line of the answer.
#[derive(Clone, Debug, Default)]
struct Line {
    /// What it is the sum of, in the order of the groups.
    names: Vec<String>,
    turns: u64,
    input: u64,
    cached: u64,
    written: u64,
    output: u64,
    cost: f64,
    charged: f64,
    estimated: f64,
    unpriced_turns: u64,
    unpriced_input: u64,
    unpriced_output: u64,
    unpriced_cost: f64,
}

/// The lines of a query, in their order.
fn lines(
    store: &Store,
    query: &SpendQuery,
    by: &[By],
    zone: &TimeZone,
) -> Result<Vec<Line>, Failure> {
    let mut query = query.clone();
    for by in by {
        let group = match by {
            By::Thread => SpendGroup::Thread,
            By::Session => SpendGroup::Session,
            By::Agent => SpendGroup::Agent,
            By::Model => SpendGroup::Model,
            By::Provider => SpendGroup::Provider,
            By::Source => SpendGroup::Source,
            By::Day if *zone == TimeZone::UTC => SpendGroup::Day,
            // Days of other zones begin with other hours.
            By::Hour | By::Day => SpendGroup::Hour,
        };
        if !query.group_by.contains(&group) {
            query.group_by.push(group);
        }
    }
    if by.contains(&By::Hour) {
        // They say the day too.
        query.group_by.retain(|group| *group != SpendGroup::Day);
    }
    let sums = store.spend(&query)?;
    if !query.group_by.contains(&SpendGroup::Source) {
        query.group_by.push(SpendGroup::Source);
    }
    let sources = store.spend(&query)?;
    let key_of =
        |row: &SpendRow| -> Vec<Key> { by.iter().map(|by| key_of(row, *by, zone)).collect() };
    let mut lines: BTreeMap<Vec<Key>, Line> = BTreeMap::new();
    for row in sums {
        let line = lines.entry(key_of(&row)).or_default();
        line.turns += row.turns;
        line.input += row.input_tokens;
        line.cached += row.cached_input_tokens;
        line.written += row.cache_write_tokens;
        line.output += row.output_tokens;
        line.cost += row.cost_usd;
    }
    for row in sources {
        let line = lines.entry(key_of(&row)).or_default();
        match row.source.flatten() {
            Some(UsageCostSource::Charged) => line.charged += row.cost_usd,
            Some(UsageCostSource::Estimated) => line.estimated += row.cost_usd,
            _ => {
                line.unpriced_turns += row.turns;
                line.unpriced_input += row.input_tokens;
                line.unpriced_output += row.output_tokens;
                line.unpriced_cost += row.cost_usd;
            }
        }
    }
    let named = lines.into_iter().map(|(keys, line)| Line {
        names: keys.into_iter().map(|(_, name)| name).collect(),
        ..line
    });
    Ok(named.collect())
}

/// What lines are sorted by, and their name.
type Key = (i64, String);

fn key_of(row: &SpendRow, by: By, zone: &TimeZone) -> Key {
    let text = |text: &Option<String>| (0, text.clone().unwrap_or_default());
    match by {
        By::Thread => text(&row.thread),
        By::Session => text(&row.session),
        By::Agent => text(&row.agent),
        By::Model => text(&row.model),
        By::Provider => text(&row.provider),
        By::Source => {
            let source = row.source.flatten();
            let name = source_name(source);
            let order = match source {
                Some(UsageCostSource::Charged) => 0,
                Some(UsageCostSource::Estimated) => 1,
                _ => 2,
            };
            (order, name.to_owned())
        }
        By::Day | By::Hour => {
            let hour = row.hour.unwrap_or_default();
            let begins = hour.saturating_mul(SECONDS_AN_HOUR);
            let Ok(time) = Timestamp::from_second(begins) else {
                return (hour, String::new());
            };
            let time = time.to_zoned_datetime(zone.clone());
            if by == By::Day {
                let date = time.date();
                let order = date.at(0, 0, 0, 0).to_zoned_datetime(TimeZone::UTC);
                let order = order.map_or(hour, |midnight| midnight.timestamp().as_second());
                (order, date.to_string())
            } else {
                (hour, time.strftime("%Y-%m-%d %H:%M %:z").to_string())
            }
        }
    }
}

fn heading(by: By) -> &'static str {
    match by {
        By::Thread => "THREAD",
        By::Session => "SESSION",
        By::Agent => "AGENT",
        By::Model => "MODEL",
        By::Provider => "PROVIDER",
        By::Source => "SOURCE",
        By::Day => "DAY",
        By::Hour => "HOUR",
    }
}

impl Line {
    fn cells(&self, written: bool, money: Money) -> Vec<String> {
        let shown = |usd: f64, decimals: Decimals| {
            if usd == 0.0 {
                "-".to_owned()
            } else {
                decimals.dollars(usd)
            }
        };
        let unpriced = match self.unpriced_turns {
            0 => "-".to_owned(),
            turns => {
                let tokens = self.unpriced_input.saturating_add(self.unpriced_output);
                let told = match self.unpriced_cost {
                    0.0 => String::new(),
                    usd => format!(", {} told", dollars(usd)),
                };
                format!("{}, {} tokens{told}", many(turns, "turn"), count(tokens))
            }
        };
        let mut cells = self.names.clone();
        cells.extend([count(self.turns), count(self.input), count(self.cached)]);
        cells.extend(written.then(|| count(self.written)));
        cells.extend([
            count(self.output),
            shown(self.charged, money.charged),
            shown(self.estimated, money.estimated),
            unpriced,
        ]);
        cells
    }

    fn json(&self, by: &[By]) -> Value {
        let mut line = Map::new();
        for (by, name) in by.iter().zip(&self.names) {
            line.insert(heading(*by).to_lowercase(), name.clone().into());
        }
        for (key, number) in [
            ("turns", self.turns),
            ("input_tokens", self.input),
            ("output_tokens", self.output),
            ("cached_input_tokens", self.cached),
            ("cache_write_tokens", self.written),
            ("unpriced_turns", self.unpriced_turns),
            ("unpriced_input_tokens", self.unpriced_input),
            ("unpriced_output_tokens", self.unpriced_output),
        ] {
            line.insert(key.to_owned(), number.into());
        }
        for (key, usd) in [
            ("cost_usd", self.cost),
            ("charged_usd", self.charged),
            ("estimated_usd", self.estimated),
            ("unpriced_usd", self.unpriced_cost),
        ] {
            line.insert(key.to_owned(), usd.into());
        }
        Value::Object(line)
    }
}

/// The UTC hour that a time is in; with `end`, the one at or after it.
fn hour_of(text: Option<&str>, zone: &TimeZone, end: bool) -> Result<Option<i64>, Failure> {
    let Some(text) = text else {
        return Ok(None);
    };
    let Some(time) = time_of(text.trim(), zone) else {
        return Err(usage(format!(
            "{text:?} is no time; say 2026-08-31, 2026-08-31T14:00, 2026-08-31T14:00:00Z, or how long ago: 7d, 12h"
        )));
    };
    let seconds = time.as_second();
    let hour = seconds.div_euclid(SECONDS_AN_HOUR);
    let within = seconds.rem_euclid(SECONDS_AN_HOUR) > 0;
    Ok(Some(hour + i64::from(end && within)))
}

fn time_of(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    if let Some(ago) = ago(text) {
        return Timestamp::now().checked_sub(ago).ok();
    }
    let civil = match text.parse::<Date>() {
        Ok(date) if !text.contains(['T', ' ']) => date.at(0, 0, 0, 0),
        _ => text.parse::<DateTime>().ok()?,
    };
    civil
        .to_zoned_datetime(zone.clone())
        .ok()
        .map(|time| time.timestamp())
}

/// A length of time: a number of days or hours.
fn ago(text: &str) -> Option<SignedDuration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: i64 = number.parse().ok().filter(|number| *number >= 0)?;
    let hours = match unit {
        "d" => number.checked_mul(24)?,
        "h" => number,
        _ => return None,
    };
    SignedDuration::try_from_hours(hours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_a_time_or_how_long_ago() {
        let utc = TimeZone::UTC;
        let east = TimeZone::get("Asia/Tokyo").unwrap();
        let hour = |text, zone: &TimeZone, end| hour_of(Some(text), zone, end).unwrap().unwrap();
        assert_eq!(hour("1970-01-02", &utc, false), 24);
        assert_eq!(hour("1970-01-02", &east, false), 15);
        assert_eq!(hour("1970-01-01T05:30", &utc, false), 5);
        assert_eq!(hour("1970-01-01T05:30", &utc, true), 6);
        assert_eq!(hour("1970-01-01T05:00:00Z", &east, true), 5);
        let now = Timestamp::now().as_second() / SECONDS_AN_HOUR;
        assert!((0..=1).contains(&(now - 48 - hour("2d", &utc, false))));
        for wrong in [
            "",
            "x",
            "d",
            "-1d",
            "7w",
            "99999999999999999999h",
            "1970-13-01",
        ] {
            assert!(hour_of(Some(wrong), &utc, false).is_err(), "{wrong}");
        }
    }
}
