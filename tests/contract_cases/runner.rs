//! Plays a case through the traits alone, and holds everything that the store then shows against it.

use std::sync::Arc;

use jiff::Timestamp;
use transcript_redb::spend::transcript_spend;
use transcript_redb::{
    BackgroundAppend, DisplayRecord, Error, Result, SessionRef, TranscriptHistory,
    TranscriptLocator, TranscriptMessage, TranscriptMeta, TranscriptTurn,
};
use uuid::Uuid;

use crate::dsl::{Act, Background, Case, Row, Source, Step, Turn};
use crate::render::{self, Renderer};

const THREAD: &str = "thread";

/// Plays `case` on an empty store; the error is every difference between what is shown and what the case states.
pub fn play(locator: &dyn TranscriptLocator, case: &Case) -> std::result::Result<(), String> {
    let mut player = Player::new(locator);
    for (number, step) in case.steps.iter().enumerate() {
        player
            .step(number, step)
            .map_err(|error| format!("step {}: {error}", number + 1))?;
    }
    let shown = player.shown();
    let mut expected = Vec::new();
    for (generation, lines) in case.displays.iter().enumerate() {
        expected.push(format!("generation {generation}:"));
        expected.extend(lines.iter().map(|line| format!("  {line}")));
    }
    expected.push(format!("context: {}", case.context));
    expected.push(format!("live: {}", case.live));
    expected.push(format!("thread: {}", case.thread));
    expected.push(format!("tools: {:?}", case.tools));
    if shown == expected {
        return Ok(());
    }
    Err(format!(
        "stated:\n    {}\n  shown:\n    {}",
        expected.join("\n    "),
        shown.join("\n    ")
    ))
}

struct Player<'a> {
    locator: &'a dyn TranscriptLocator,
    started: Timestamp,
    session: SessionRef,
    /// The handle that the next call goes to.
    handle: Arc<dyn TranscriptHistory>,
    remembered: Vec<TranscriptMessage>,
    /// The meta that the newest write brought.
    meta: Option<TranscriptMeta>,
    /// The meta that a write without one brings when it is the first.
    seed: TranscriptMeta,
}

/// A meta that no other step brings.
fn meta_of_step(number: usize) -> TranscriptMeta {
    TranscriptMeta::new("agent")
        .with_created("2026-01-02T03:04:05Z")
        .with_updated(format!("step {number}"))
        .with_turn_count(number)
        .with_thread_id(THREAD)
}

impl<'a> Player<'a> {
    fn new(locator: &'a dyn TranscriptLocator) -> Self {
        let session = SessionRef::scoped("case", "agent");
        let seed = meta_of_step(0);
        let handle = locator
            .open_session(&session, seed.clone())
            .expect("a session opens");
        Self {
            locator,
            started: Timestamp::now(),
            session,
            handle,
            remembered: Vec::new(),
            meta: None,
            seed,
        }
    }

    /// The written generations, oldest first.
    fn chain(&self) -> Vec<SessionRef> {
        self.locator
            .session_chain(&self.session)
            .expect("a chain can be read")
    }

    /// A handle on the newest written generation, if there is one.
    fn head(&self) -> Option<Arc<dyn TranscriptHistory>> {
        let head = self.chain().pop()?;
        let handle = self.locator.open_session(&head, self.seed.clone());
        Some(handle.expect("a session opens"))
    }

    /// What the caller reads before a call: the context of the newest written generation.
    fn read(&self) -> Vec<TranscriptMessage> {
        self.head().map_or_else(Vec::new, |head| {
            head.messages().expect("a context can be read")
        })
    }

    fn rows(&self, rows: &[Row]) -> Vec<TranscriptMessage> {
        let stored = self.read();
        rows.iter()
            .map(|row| {
                row.edited(match &row.source {
                    Source::New(message) => (**message).clone(),
                    Source::Kept(place) => stored[*place].clone(),
                    Source::Remembered(place) => self.remembered[*place].clone(),
                })
            })
            .collect()
    }

    fn step(&mut self, number: usize, step: &Step) -> std::result::Result<(), String> {
        let before = step.refused.map(|_| self.shown());
        let result = self.act(number + 1, &step.act);
        match (result, step.refused) {
            (Ok(()), None) => Ok(()),
            (Ok(()), Some(kind)) => Err(format!("succeeded, but is {kind:?}")),
            (Err(error), Some(kind)) if error.kind() == kind => {
                if before.as_ref() == Some(&self.shown()) {
                    Ok(())
                } else {
                    Err("was refused, but left something behind".into())
                }
            }
            (Err(error), expected) => Err(format!("is {expected:?}, but failed: {error}")),
        }
    }

    fn act(&mut self, number: usize, act: &Act) -> Result<()> {
        match act {
            Act::Turn(turn) => self.turn(number, turn),
            Act::Append(row) => {
                let row = self.rows(std::slice::from_ref(row)).remove(0);
                self.handle.append(row)?;
                self.wrote_without_meta();
                Ok(())
            }
            Act::Replace(rows) => {
                self.handle.replace(&self.rows(rows))?;
                self.wrote_without_meta();
                Ok(())
            }
            Act::Clear => self.handle.clear(),
            Act::Background(background) => self.background(background),
            Act::Begin(baseline) => {
                let head = self.chain().pop().unwrap_or_else(|| self.session.clone());
                let seed = meta_of_step(number);
                let (successor, handle) = match baseline {
                    None => self.locator.begin_generation(&head, seed.clone())?,
                    Some(rows) => {
                        let rows = self.rows(rows);
                        self.locator
                            .begin_generation_from_baseline(&head, seed.clone(), &rows)?
                    }
                };
                self.on_successor(&head, &successor, handle, seed);
                Ok(())
            }
            Act::OpenNext => {
                let head = self.chain().pop().unwrap_or_else(|| self.session.clone());
                self.seed = meta_of_step(number);
                self.meta = None;
                let next = head.next_generation();
                self.handle = self.locator.open_session(&next, self.seed.clone())?;
                Ok(())
            }
            Act::To(generation) => {
                let mut session = self.session.clone();
                session.generation = *generation;
                self.handle = self.locator.open_session(&session, self.seed.clone())?;
                self.meta = self
                    .head()
                    .and_then(|head| head.read_session().expect("a session can be read"))
                    .map(|stored| stored.meta);
                Ok(())
            }
            Act::Truncate(cut) => {
                let head = self.chain().pop().unwrap_or_else(|| self.session.clone());
                let stored = self.read();
                let seed = meta_of_step(number);
                let (successor, handle, kept) = self.locator.truncate_into_next_generation(
                    &self.session,
                    cut.clone(),
                    seed.clone(),
                )?;
                assert_eq!(successor, head.next_generation());
                assert_eq!(kept, stored[..kept.len()]);
                assert_eq!(kept, handle.messages()?);
                self.on_successor(&head, &successor, handle, seed);
                self.wrote_without_meta();
                Ok(())
            }
            Act::Partial(partial, request) => {
                let stored = self
                    .locator
                    .append_interrupted_partial(THREAD, None, partial, *request)?;
                assert_eq!(stored, !partial.content.is_empty());
                Ok(())
            }
            Act::Remember => {
                self.remembered = self.read();
                Ok(())
            }
        }
    }

    fn turn(&mut self, number: usize, turn: &Turn) -> Result<()> {
        let prev = match &turn.prev {
            Some(rows) => self.rows(rows),
            None => self.read(),
        };
        let next = self.rows(&turn.next);
        let meta = meta_of_step(number);
        self.handle.append_turn_with_partial(
            TranscriptTurn {
                prev: &prev,
                next: &next,
                meta: &meta,
                turn_usage: turn.usage.as_ref(),
                request_id: turn.request,
                tools: turn.tools.as_ref(),
                compaction: turn.compaction.as_ref(),
            },
            turn.partial.as_ref(),
        )?;
        let stored = self.handle.messages()?;
        assert!(
            transcript_redb::same_transcript_messages(&stored, &next),
            "after a turn the context is what the caller said it is"
        );
        self.meta = Some(meta);
        Ok(())
    }

    fn background(&mut self, background: &Background) -> Result<()> {
        let row = self.rows(std::slice::from_ref(&background.row)).remove(0);
        let mut append = BackgroundAppend::new(background.key, background.provenance.clone());
        append.expected_generation = background.expected_generation;
        let outcome = self
            .locator
            .append_background(&self.session, row, &append)?;
        if outcome == background.outcome {
            Ok(())
        } else {
            let text = format!("{outcome:?} instead of {:?}", background.outcome);
            Err(Error::other(text))
        }
    }

    fn on_successor(
        &mut self,
        head: &SessionRef,
        successor: &SessionRef,
        handle: Arc<dyn TranscriptHistory>,
        seed: TranscriptMeta,
    ) {
        self.handle = handle;
        self.meta = None;
        self.seed = TranscriptMeta {
            session_id: Some(successor.session_id()),
            parent_session_id: Some(head.session_id()),
            ..seed
        };
    }

    fn wrote_without_meta(&mut self) {
        let seed = || self.seed.clone();
        self.meta = Some(self.meta.take().unwrap_or_else(seed));
    }

    /// Everything that the store shows, after checking that its reads agree with each other.
    fn shown(&self) -> Vec<String> {
        let mut renderer = Renderer::new(self.started);
        let mut lines = Vec::new();
        let mut context: Vec<(Uuid, TranscriptMessage)> = Vec::new();
        for generation in self.chain() {
            let handle = self
                .locator
                .open_session(&generation, self.seed.clone())
                .expect("a session opens");
            let display = handle
                .read_display()
                .expect("a display can be read")
                .expect("a generation of the chain is written");
            let page = handle
                .read_display_before(None, usize::MAX)
                .expect("a page can be read")
                .expect("a generation of the chain is written");
            let paged: Vec<_> = page.records.into_iter().map(|(_, record)| record).collect();
            assert_eq!(paged, display.records, "the pages and the display agree");
            lines.push(format!("generation {}:", generation.generation));
            let shown = renderer.display(&display);
            lines.extend(shown.into_iter().map(|line| format!("  {line}")));
            context.clear();
            for record in display.records {
                match record {
                    DisplayRecord::Message(row) if row.interrupted => {}
                    DisplayRecord::Message(row) => context.push((row.uuid, row.message)),
                    DisplayRecord::Compaction(marker) => {
                        context = marker
                            .replacement
                            .into_iter()
                            .map(|row| (row.uuid, row.message))
                            .collect();
                    }
                }
            }
        }
        let (uuids, messages): (Vec<_>, Vec<_>) = context.into_iter().unzip();
        lines.push(format!("context: {}", renderer.numbers(uuids)));
        let session = self.head().and_then(|head| {
            assert_eq!(head.messages().expect("a context can be read"), messages);
            head.read_session().expect("a session can be read")
        });
        let live = session.as_ref().map(transcript_spend).unwrap_or_default();
        lines.push(format!("live: {}", render::spend(&live)));
        let thread = self
            .locator
            .thread_spend(THREAD)
            .expect("spend can be read");
        lines.push(format!("thread: {}", render::thread(&thread)));
        assert_eq!(thread.found_transcript, session.is_some());
        assert_eq!(
            thread.updated,
            session.as_ref().map(|session| session.meta.updated.clone())
        );
        if let Some(session) = &session {
            assert_eq!(session.messages, messages, "replay and display agree");
            if let Some(meta) = &self.meta {
                assert_eq!(
                    session.meta, *meta,
                    "the newest meta is that of the newest write"
                );
            }
        }
        let tools = session.and_then(|session| session.tools);
        lines.push(format!("tools: {tools:?}"));
        lines
    }
}
