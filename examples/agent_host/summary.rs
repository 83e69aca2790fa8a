//! The report that a person reads.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use transcript_redb::TranscriptSpend;

use crate::evidence::{Evidence, Used};
use crate::plan::Session;
use crate::proof::sum;

/// A table with a line of titles; text to the left, numbers to the right.
#[derive(Debug)]
struct Table {
    titles: &'static [&'static str],
    /// How many leading columns hold text.
    words: usize,
    lines: Vec<Vec<String>>,
}

impl Table {
    fn new(titles: &'static [&'static str], words: usize) -> Self {
        Table {
            titles,
            words,
            lines: Vec::new(),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.lines.iter().filter_map(|line| line.get(column));
            let titles = self.titles.get(column).map(|title| title.chars().count());
            cells
                .map(|cell| cell.chars().count())
                .chain(titles)
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.titles.len()).map(width).collect();
        let titles = self
            .titles
            .iter()
            .map(|title| (*title).to_owned())
            .collect();
        for line in std::iter::once(&titles).chain(&self.lines) {
            for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
                if column < self.words {
                    write!(out, "  {cell:<width$}")?;
                } else {
                    write!(out, "  {cell:>width$}")?;
                }
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

/// Where each session stands.
pub fn heads(sessions: &[Session], found: &[Evidence]) -> String {
    let mut table = Table::new(
        &[
            "session",
            "agent",
            "conversation",
            "generation",
            "turns",
            "rows",
            "live rows",
        ],
        3,
    );
    for (session, found) in sessions.iter().zip(found) {
        let generation = found.head.as_ref().map_or(0, |head| head.generation);
        table.lines.push(vec![
            session.thread_id.clone(),
            session.agent.clone(),
            shortened(&session.title),
            generation.to_string(),
            found.turn_count.to_string(),
            found.rows.len().to_string(),
            found.live.len().to_string(),
        ]);
    }
    format!("heads\n{table}")
}

fn shortened(title: &str) -> String {
    const WIDTH: usize = 36;
    if title.chars().count() <= WIDTH {
        return title.to_owned();
    }
    let mut short: String = title.chars().take(WIDTH - 1).collect();
    short.push('…');
    short
}

/// Spend by agent, as the store answers it for each thread; sub-agents by their archetype.
pub fn spend_by_agent(sessions: &[Session], found: &[Evidence]) -> String {
    let mut agents: BTreeMap<(bool, &str), (TranscriptSpend, usize)> = BTreeMap::new();
    for (session, found) in sessions.iter().zip(found) {
        let root = (false, session.agent.as_str(), &found.spend.root, 1);
        let children = found.spend.subagents.iter();
        let children = children.map(|(agent, (spend, runs))| (true, agent.as_str(), spend, *runs));
        for (subagent, agent, spend, runs) in std::iter::once(root).chain(children) {
            let (sum, count) = agents.entry((subagent, agent)).or_default();
            add(sum, spend);
            *count += runs;
        }
    }
    let mut table = Table::new(
        &[
            "agent",
            "",
            "runs",
            "turns",
            "input",
            "cached",
            "output",
            "USD",
            "unpriced turns",
        ],
        2,
    );
    for ((subagent, agent), (spend, runs)) in agents {
        let kind = if subagent { "sub-agent" } else { "" };
        let mut line = vec![agent.to_owned(), kind.to_owned(), runs.to_string()];
        line.extend(figures(&spend));
        table.lines.push(line);
    }
    format!("spend by agent\n{table}")
}

/// Spend by model, counted from the displays.
pub fn spend_by_model(found: &[Evidence]) -> String {
    let mut models: BTreeMap<(&str, &str), Vec<&Used>> = BTreeMap::new();
    for used in found.iter().flat_map(|found| &found.usages) {
        let key = (used.usage.provider.as_str(), used.usage.model.as_str());
        models.entry(key).or_default().push(used);
    }
    let mut table = Table::new(
        &[
            "provider",
            "model",
            "price",
            "turns",
            "input",
            "cached",
            "output",
            "USD",
            "unpriced turns",
        ],
        3,
    );
    for ((provider, model), used) in models {
        let spend = sum(used);
        let source = spend.cost_split.priced_source;
        let price = source.map_or_else(
            || "unknown".to_owned(),
            |source| format!("{source:?}").to_lowercase(),
        );
        let mut line = vec![provider.to_owned(), model.to_owned(), price];
        line.extend(figures(&spend));
        table.lines.push(line);
    }
    format!("spend by model\n{table}")
}

fn figures(spend: &TranscriptSpend) -> [String; 6] {
    [
        spend.turns.to_string(),
        spend.input_tokens.to_string(),
        spend.cached_input_tokens.to_string(),
        spend.output_tokens.to_string(),
        format!("{:.6}", spend.cost_usd),
        spend.cost_split.unpriced_turns.to_string(),
    ]
}

fn add(sum: &mut TranscriptSpend, other: &TranscriptSpend) {
    sum.turns += other.turns;
    sum.input_tokens += other.input_tokens;
    sum.output_tokens += other.output_tokens;
    sum.cached_input_tokens += other.cached_input_tokens;
    sum.cost_usd += other.cost_usd;
    sum.cost_split.merge(&other.cost_split);
}

/// What happened besides turns.
pub fn events(found: &[Evidence]) -> String {
    let count = |of: fn(&Evidence) -> usize| found.iter().map(of).sum::<usize>();
    format!(
        "compactions {}, new generations {}, sub-agents {}, background reports {}, interrupted texts {}",
        count(|found| found.compactions),
        count(|found| found.generations.saturating_sub(1)),
        count(|found| found.tasks.len()),
        count(|found| found.reports.len()),
        count(Evidence::partials),
    )
}

/// `1 turn`, `2 turns`.
pub fn count(number: usize, what: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {what}{end}")
}

/// `12 turns and 7 other writes in 0.034 s: 353 durable turns a second`; no rate where there was no turn.
pub fn rate(turns: usize, others: usize, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let writes = format!(
        "{} and {}",
        count(turns, "turn"),
        count(others, "other write")
    );
    if turns > 0 && seconds > 0.0 {
        let rate = f64::from(u32::try_from(turns).unwrap_or(u32::MAX)) / seconds;
        format!("{writes} in {seconds:.3} s: {rate:.0} durable turns a second")
    } else {
        writes
    }
}
