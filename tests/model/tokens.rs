//! Tokens of heads, and the appends by them.

use transcript_redb::{
    AppendRows, ErrorKind, HeadToken, SessionRef, TranscriptLocator as _, TranscriptTurn,
};

use super::diff::{Checked, holds, same};
use super::op::{Around, Meta, Partial, Row, Usage};
use super::pair::{Pair, Touched, read};
use super::stems::{base_of, generation_of};

/// A token, and what its session was like when it was given.
pub struct Token {
    session: usize,
    value: HeadToken,
    writes: usize,
    log: LogSize,
}

/// Changes with every record that a log takes, but tools.
#[derive(PartialEq, Eq)]
struct LogSize {
    generations: u32,
    shown: usize,
    unattached: usize,
}

impl Pair {
    /// Takes a token of a session's head and keeps it.
    pub fn head(&mut self, index: usize, slot: usize) -> Checked<Touched> {
        let session = self.world.sessions[index].clone();
        let found = read("head", self.store.head(&session))?;
        let head = self.chain_of(&base_of(&session)).checked_sub(1);
        same(
            "the generation of a token",
            &head,
            &found.map(|it| it.generation),
        )?;
        if let Some(token) = found {
            self.keep(slot, index, token)?;
        }
        Ok(None)
    }

    fn keep(&mut self, slot: usize, index: usize, value: HeadToken) -> Checked {
        let session = self.world.sessions[index].clone();
        self.tokens[slot] = Some(Token {
            session: index,
            value,
            writes: self.count_of_writes(&session),
            log: self.log_size(&session)?,
        });
        Ok(())
    }

    fn count_of_writes(&self, session: &SessionRef) -> usize {
        self.writes
            .get(&base_of(session))
            .map_or(0, |(count, _)| *count)
    }

    fn log_size(&self, session: &SessionRef) -> Checked<LogSize> {
        let generations = self.chain_of(&base_of(session));
        let mut size = LogSize {
            generations,
            shown: 0,
            unattached: 0,
        };
        if let Some(head) = generations.checked_sub(1) {
            let head = generation_of(session, head);
            let handle = read(
                "open",
                self.memory.open_session(&head, Meta::default().value()),
            )?;
            let display = read("display", handle.read_display())?.expect("it is written");
            size.shown = display.records.len();
            size.unattached = display.unattached.len();
        }
        Ok(size)
    }

    /// What `append_rows` does is what a turn on the context as it is does.
    pub fn append_rows(
        &mut self,
        slot: usize,
        rows: &[Row],
        meta: Option<&Meta>,
        around: &Around,
    ) -> Checked<Touched> {
        let Some(kept) = &self.tokens[slot] else {
            return Ok(None);
        };
        let (index, token) = (kept.session, kept.value);
        let session = self.world.sessions[index].clone();
        let base = base_of(&session);
        let now = self.log_size(&session)?;
        let changed = now != kept.log;
        let untouched = self.count_of_writes(&session) == kept.writes;
        let succeeded = now.generations != kept.log.generations;

        let rows: Vec<_> = rows.iter().map(Row::message).collect();
        let meta = meta.map(Meta::value);
        let usage = around.usage.as_ref().map(Usage::value);
        let partial = around.partial.as_ref().map(Partial::value);
        let append = AppendRows {
            rows: &rows,
            meta: meta.as_ref(),
            usage: usage.as_ref(),
            request_id: around.request,
            tools: around.tools.as_ref().map(|tools| &tools.0),
            partial: partial.as_ref(),
        };
        let attempt = |pair: &Self| pair.store.append_rows(&session, &token, append);
        let found = |pair: &Self| {
            let head = read("head", pair.store.head(&session))?;
            Ok(head.expect("it is written"))
        };
        let Some(answer) = self.struck(Some(&base), attempt, found)? else {
            return Ok(Some(base));
        };
        let kind = answer.as_ref().err().map(transcript_redb::Error::kind);
        let invalid = matches!(
            kind,
            Some(ErrorKind::InvalidMessage | ErrorKind::TooLarge | ErrorKind::InvalidId)
        );
        if changed {
            self.note("an old token");
            let expected = if succeeded {
                ErrorKind::Sealed
            } else {
                ErrorKind::Stale
            };
            holds(invalid || kind == Some(expected), || {
                format!("append_rows by an old token answers {answer:?}, not {expected:?}")
            })?;
            return Ok(Some(base));
        }
        // A header or tools alone may or may not move the head.
        if !untouched && kind == Some(ErrorKind::Stale) {
            return Ok(Some(base));
        }
        if rows.is_empty() {
            let same_token = answer.as_ref().ok() == Some(&token);
            let sealed = kind == Some(ErrorKind::Sealed);
            holds(same_token || sealed || invalid, || {
                format!("append_rows without rows answers {answer:?}")
            })?;
            return Ok(Some(base));
        }
        let head = read("head_generation", self.memory.head_generation(&session))?;
        let handle = read(
            "open",
            self.memory.open_session(&head, Meta::default().value()),
        )?;
        let stored = read("read_session", handle.read_session())?.expect("it is written");
        let mut next = stored.messages.clone();
        next.extend_from_slice(&rows);
        let mut turn =
            TranscriptTurn::new(&stored.messages, &next, append.meta.unwrap_or(&stored.meta));
        turn.turn_usage = append.usage;
        turn.request_id = append.request_id;
        turn.tools = append.tools;
        let mirrored = handle.append_turn_with_partial(turn, append.partial);
        if invalid {
            // Rows are checked before the head is looked at, so a turn may be refused for another reason.
            holds(mirrored.is_err(), || {
                format!("append_rows answers {answer:?}, a turn succeeds")
            })?;
            return Ok(Some(base));
        }
        let shown = answer.clone().map(drop);
        let wrote = self.agree("append_rows", mirrored, shown)?.is_some();
        if wrote {
            self.wrote(&base);
        }
        if let Ok(token) = answer {
            let head = read("head", self.store.head(&session))?;
            same("the token after append_rows", &head, &Some(token))?;
            self.keep(slot, index, token)?;
        }
        Ok(Some(base))
    }
}
