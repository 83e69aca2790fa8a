//! Questions about spend, answered from totals.

use std::collections::{BTreeMap, HashMap};

use super::apply::thread_of;
use super::database::{storage_error, table_error};
use super::head::{Totals, source_from_code};
use super::read::Reader;
use super::tables;
use crate::spend::Money;
use crate::{Result, SessionRef, UsageCostSource};

const HOURS_A_DAY: i64 = 24;

/// What spend to sum, and how to split the sum. Rows come sorted by their groups, in the order of `group_by`.
///
/// A usage falls into the UTC hour of its [`ts`](crate::TurnUsage::ts) if that is an RFC 3339 time, else into the hour in
/// which it was written.
///
/// Without a time range and without [`SpendGroup::Hour`] or [`SpendGroup::Day`] a usage counts for the thread that its
/// session belongs to now. With one of them it counts for the thread, agent and hour that it was recorded under.
#[derive(Clone, Debug, Default)]
pub struct SpendQuery {
    /// Only this thread (compared trimmed), its sub-agents included.
    pub thread: Option<String>,
    /// Only this session, all its generations, without sub-agents.
    pub session: Option<SessionRef>,
    /// Only usage recorded under this agent name.
    pub agent: Option<String>,
    /// Only this provider.
    pub provider: Option<String>,
    /// Only this model.
    pub model: Option<String>,
    /// Only usage from this UTC hour on: a Unix time in seconds divided by 3600, rounded down.
    pub since_hour: Option<i64>,
    /// Only usage before this UTC hour, counted likewise.
    pub until_hour: Option<i64>,
    /// One row for each combination of these that has usage; one row in all if empty, none if there is no usage.
    pub group_by: Vec<SpendGroup>,
}

/// A way to split a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SpendGroup {
    /// By thread.
    Thread,
    /// By session.
    Session,
    /// By agent name.
    Agent,
    /// By provider.
    Provider,
    /// By model.
    Model,
    /// By where the cost comes from.
    Source,
    /// By UTC hour.
    Hour,
    /// By UTC day.
    Day,
}

/// One group of a [`SpendQuery`]. Only the fields of its groups are set; an empty name is usage without one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpendRow {
    /// The thread.
    pub thread: Option<String>,
    /// Stem of generation 0 of the session.
    pub session: Option<String>,
    /// The agent name.
    pub agent: Option<String>,
    /// The provider.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// Where the cost comes from; the inner None is a record that does not say.
    pub source: Option<Option<UsageCostSource>>,
    /// The UTC hour: a Unix time in seconds divided by 3600; of a day its first.
    pub hour: Option<i64>,
    /// Usages counted.
    pub turns: u64,
    /// Input tokens, cached ones included.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// The part of the input that came from a cache.
    pub cached_input_tokens: u64,
    /// The part of the input that was written to a cache, as far as imports tell; hosts tell nothing of it.
    pub cache_write_tokens: u64,
    /// The sum of all costs in USD, whatever their source.
    pub cost_usd: f64,
}

impl SpendRow {
    fn new(groups: &[SpendGroup], key: Vec<Part>, totals: &Totals) -> Self {
        let mut row = Self {
            turns: totals.turns,
            input_tokens: totals.input_tokens,
            output_tokens: totals.output_tokens,
            cached_input_tokens: totals.cached_input_tokens,
            cache_write_tokens: totals.cache_write_tokens,
            cost_usd: Money(totals.cost).to_usd(),
            ..Self::default()
        };
        for (group, part) in groups.iter().zip(key) {
            match (group, part) {
                (SpendGroup::Thread, Part::Text(text)) => row.thread = Some(text),
                (SpendGroup::Session, Part::Text(text)) => row.session = Some(text),
                (SpendGroup::Agent, Part::Text(text)) => row.agent = Some(text),
                (SpendGroup::Provider, Part::Text(text)) => row.provider = Some(text),
                (SpendGroup::Model, Part::Text(text)) => row.model = Some(text),
                (_, Part::Source(code)) => row.source = Some(source_from_code(code)),
                (_, Part::Hour(hour)) => row.hour = Some(hour),
                (_, Part::Text(_)) => {}
            }
        }
        row
    }
}

/// A row of totals with its dimensions.
struct Cell {
    thread: u64,
    session: u64,
    agent: u64,
    provider: u64,
    model: u64,
    source: u8,
    hour: i64,
    totals: Totals,
}

/// What one group of a query is for a row; rows are sorted by these, in the order in which they were asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Text(String),
    Source(u8),
    Hour(i64),
}

impl Reader<'_> {
    /// Sums spend.
    pub(super) fn spend(&mut self, query: &SpendQuery) -> Result<Vec<SpendRow>> {
        let Some(filter) = self.spend_filter(query)? else {
            return Ok(Vec::new());
        };
        let timed = query.since_hour.is_some()
            || query.until_hour.is_some()
            || query
                .group_by
                .iter()
                .any(|it| matches!(it, SpendGroup::Hour | SpendGroup::Day));
        let mut sums: BTreeMap<Vec<Part>, Totals> = BTreeMap::new();
        let mut texts = Texts::default();
        let cells = if timed {
            self.hour_cells(query)?
        } else {
            self.transcript_cells(query)?
        };
        for cell in cells {
            if !filter.accepts(&cell) {
                continue;
            }
            let key = self.group_key(&query.group_by, &cell, &mut texts)?;
            sums.entry(key).or_default().add(&cell.totals);
        }
        Ok(sums
            .into_iter()
            .map(|(key, totals)| SpendRow::new(&query.group_by, key, &totals))
            .collect())
    }

    /// The filters by id. None if one names something that was never recorded.
    fn spend_filter(&mut self, query: &SpendQuery) -> Result<Option<Filter>> {
        let mut filter = Filter::default();
        for (name, slot) in [
            (query.thread.as_deref().map(str::trim), &mut filter.thread),
            (query.agent.as_deref(), &mut filter.agent),
            (query.provider.as_deref(), &mut filter.provider),
            (query.model.as_deref(), &mut filter.model),
        ] {
            let Some(name) = name else { continue };
            *slot = Some(match name {
                "" => 0,
                name => match self.name_id(name)? {
                    Some(id) => id,
                    None => return Ok(None),
                },
            });
        }
        if let Some(session) = &query.session {
            match self.stem_id(&session.base_stem())? {
                Some(id) => filter.session = Some(id),
                None => return Ok(None),
            }
        }
        Ok(Some(filter))
    }

    /// Totals by hour, as they were recorded.
    fn hour_cells(&mut self, query: &SpendQuery) -> Result<Vec<Cell>> {
        let first = (query.since_hour.unwrap_or(i64::MIN), 0, 0, 0, 0, 0, 0);
        let behind = (query.until_hour.unwrap_or(i64::MAX), 0, 0, 0, 0, 0, 0);
        if first >= behind {
            return Ok(Vec::new());
        }
        let table = self
            .snapshot
            .transaction
            .open_table(tables::SPEND_BY_HOUR)
            .map_err(table_error)?;
        table
            .range(first..behind)
            .map_err(storage_error)?
            .map(|entry| {
                let (key, bytes) = entry.map_err(storage_error)?;
                let (hour, thread, session, agent, provider, model, source) = key.value();
                let totals = Totals::decode(bytes.value())?;
                Ok(Cell {
                    thread,
                    session,
                    agent,
                    provider,
                    model,
                    source,
                    hour,
                    totals,
                })
            })
            .collect()
    }

    /// Totals by transcript, under the thread that each belongs to now.
    fn transcript_cells(&mut self, query: &SpendQuery) -> Result<Vec<Cell>> {
        let by_thread = query.group_by.contains(&SpendGroup::Thread);
        let transcripts = match (&query.session, &query.thread) {
            (Some(session), _) => match self.stem_id(&session.base_stem())? {
                Some(id) => Some(self.chain(id)?.into_iter().map(|(_, it)| it).collect()),
                None => Some(Vec::new()),
            },
            (None, Some(thread)) if !thread.trim().is_empty() => {
                let thread = self.thread(thread, None)?;
                let chains = thread.roots.iter().chain(&thread.subagents);
                Some(
                    chains
                        .flat_map(|it| &it.generations)
                        .map(|(_, id, _)| *id)
                        .collect(),
                )
            }
            _ => None,
        };
        let spans: Vec<(u64, u64)> = match transcripts {
            None => vec![(0, u64::MAX)],
            Some(ids) => ids.into_iter().map(|id: u64| (id, id)).collect(),
        };
        let mut rows = Vec::new();
        {
            let table = self
                .snapshot
                .transaction
                .open_table(tables::SPEND_BY_TRANSCRIPT)
                .map_err(table_error)?;
            for (first, last) in spans {
                let range = (first, 0, 0, 0, 0)..=(last, u64::MAX, u64::MAX, u64::MAX, u8::MAX);
                for entry in table.range(range).map_err(storage_error)? {
                    let (key, bytes) = entry.map_err(storage_error)?;
                    let totals = Totals::decode(bytes.value())?;
                    rows.push((key.value(), totals));
                }
            }
        }
        let mut threads = HashMap::new();
        let mut cells = Vec::with_capacity(rows.len());
        for ((transcript, agent, provider, model, source), totals) in rows {
            let session = self.transcript(transcript)?.birth.session;
            let thread = if by_thread || query.thread.is_some() {
                match threads.get(&session) {
                    Some(thread) => *thread,
                    None => {
                        let thread = self.thread_id_of(session)?;
                        threads.insert(session, thread);
                        thread
                    }
                }
            } else {
                0
            };
            cells.push(Cell {
                thread,
                session,
                agent,
                provider,
                model,
                source,
                hour: 0,
                totals,
            });
        }
        Ok(cells)
    }

    /// The name id of the thread that a session belongs to now: that of the written root above it, else its own.
    fn thread_id_of(&mut self, session: u64) -> Result<u64> {
        let mut passed = std::collections::HashSet::from([session]);
        let mut top = session;
        while let Some(parent) = self.stem_info(top)?.parent {
            if !passed.insert(parent) {
                top = session;
                break;
            }
            top = parent;
        }
        let head = match self.newest(top)? {
            Some((_, head)) => Some(head),
            None => self.newest(session)?.map(|(_, head)| head),
        };
        let Some(head) = head else { return Ok(0) };
        let head = self.transcript(head)?;
        Ok(match thread_of(&head.head.meta) {
            Some(thread) => self.name_id(thread)?.unwrap_or(0),
            None => 0,
        })
    }

    fn group_key(
        &mut self,
        groups: &[SpendGroup],
        cell: &Cell,
        texts: &mut Texts,
    ) -> Result<Vec<Part>> {
        groups
            .iter()
            .map(|group| {
                Ok(match group {
                    SpendGroup::Thread => Part::Text(self.text(cell.thread, texts)?),
                    SpendGroup::Session => Part::Text(self.stem_info(cell.session)?.stem),
                    SpendGroup::Agent => Part::Text(self.text(cell.agent, texts)?),
                    SpendGroup::Provider => Part::Text(self.text(cell.provider, texts)?),
                    SpendGroup::Model => Part::Text(self.text(cell.model, texts)?),
                    SpendGroup::Source => Part::Source(cell.source),
                    SpendGroup::Hour => Part::Hour(cell.hour),
                    SpendGroup::Day => Part::Hour(cell.hour - cell.hour.rem_euclid(HOURS_A_DAY)),
                })
            })
            .collect()
    }

    fn text(&mut self, id: u64, texts: &mut Texts) -> Result<String> {
        if id == 0 {
            return Ok(String::new());
        }
        if let Some(text) = texts.0.get(&id) {
            return Ok(text.clone());
        }
        let text = self.name(id)?;
        texts.0.insert(id, text.clone());
        Ok(text)
    }
}

#[derive(Default)]
struct Texts(HashMap<u64, String>);

#[derive(Default)]
struct Filter {
    thread: Option<u64>,
    session: Option<u64>,
    agent: Option<u64>,
    provider: Option<u64>,
    model: Option<u64>,
}

impl Filter {
    fn accepts(&self, cell: &Cell) -> bool {
        let fits = |wanted: Option<u64>, found: u64| wanted.is_none_or(|wanted| wanted == found);
        fits(self.thread, cell.thread)
            && fits(self.session, cell.session)
            && fits(self.agent, cell.agent)
            && fits(self.provider, cell.provider)
            && fits(self.model, cell.model)
    }
}
