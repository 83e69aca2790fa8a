//! Recording a conversation while it runs.

use serde_json::Value;
use uuid::Uuid;

use super::model::{BoundaryMeta, LogMessage, LogUsage, trim};
use super::rows::{USAGE, messages_of, rows_of, usage_of};
use crate::interchange::blocks::note;
use crate::{
    AppendRows, Error, HeadToken, Result, SessionRef, Store, TranscriptLocator, TranscriptMessage,
    TranscriptMeta, TranscriptTurn,
};

/// A new id for a session: 32 hex digits.
#[must_use]
pub fn new_session_id() -> String {
    Uuid::new_v4().simple().to_string()
}

/// A new id for the run of a sub-agent: 32 hex digits.
#[must_use]
pub fn new_agent_id() -> String {
    Uuid::new_v4().simple().to_string()
}

/// Records one conversation into a store.
///
/// A failure to record never stops the conversation: the first error is [kept](Self::error), the message stays in
/// memory, and the next one is recorded behind the last that reached the store.
#[derive(Debug)]
pub struct Recorder {
    store: Store,
    session: SessionRef,
    meta: TranscriptMeta,
    token: Option<HeadToken>,
    messages: Vec<LogMessage>,
    usage: LogUsage,
    error: Option<Error>,
}

impl Recorder {
    /// Begins to record the session with this id, behind whatever is stored of it.
    #[must_use]
    pub fn new(store: &Store, session_id: &str) -> Self {
        Self::of(store, SessionRef::root(session_id), session_id)
    }

    /// Begins to record the run of a sub-agent of a session.
    #[must_use]
    pub fn for_agent(store: &Store, session_id: &str, agent_id: &str) -> Self {
        let root = SessionRef::root(session_id);
        let mut recorder = Self::of(store, SessionRef::child_of(&root, agent_id), session_id);
        recorder.meta.agent_id = Some(agent_id.to_owned());
        recorder
    }

    /// Goes on with a session: its messages behind the last boundary are in memory, without calls at the end that were
    /// never answered (these stay in the store), and all its usage is summed. A session that was never recorded is empty.
    ///
    /// # Errors
    ///
    /// What reading the store answers.
    pub fn resume(store: &Store, session_id: &str) -> Result<Self> {
        let mut recorder = Self::new(store, session_id);
        let locator = store.locator();
        let head = locator.head_generation(&recorder.session)?;
        if let Some(read) = locator.read_session_transcript(&head)?
            && let Some(stored) = read.read_session()?
        {
            recorder.messages = messages_of(&stored.messages);
            trim(&mut recorder.messages);
            recorder.meta = stored.meta;
        }
        for record in store.session_records(&recorder.session)? {
            let record = record?;
            let row = record.message.map(|it| it.message);
            if let Some(usage) = row.as_ref().and_then(|row| super::rows::counters(row, 0)) {
                recorder.usage.add(&usage);
            }
        }
        Ok(recorder)
    }

    fn of(store: &Store, session: SessionRef, thread: &str) -> Self {
        let meta = TranscriptMeta::new(super::NAME)
            .with_thread_id(thread)
            .with_dispatcher(super::NAME);
        Self {
            store: store.clone(),
            session,
            meta,
            token: None,
            messages: Vec::new(),
            usage: LogUsage::default(),
            error: None,
        }
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> &SessionRef {
        &self.session
    }

    /// The conversation as it is in memory: what the model is to be sent.
    #[must_use]
    pub fn messages(&self) -> &[LogMessage] {
        &self.messages
    }

    /// The sum of all usage that was recorded with the session.
    #[must_use]
    pub fn usage(&self) -> LogUsage {
        self.usage
    }

    /// The first failure to record, if there was one. It is never cleared.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Records a message, and what the turn used, as one write.
    pub fn message(&mut self, message: LogMessage, usage: Option<LogUsage>) {
        let usage = usage.filter(|usage| !usage.is_zero());
        if let Some(usage) = &usage {
            self.usage.add(usage);
        }
        let result = self.append(&message, usage);
        self.keep(result);
        self.messages.push(message);
    }

    /// Records a compaction: the working set that goes on from here. Messages at its end that repeat the last ones before
    /// are stored once.
    pub fn boundary(&mut self, meta: &BoundaryMeta, working_set: Vec<LogMessage>) {
        let result = self.replace(meta, &working_set);
        self.keep(result);
        self.messages = working_set;
        self.messages.retain(|message| !message.is_marker());
    }

    fn keep(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.token = None;
            self.error.get_or_insert(error);
        }
    }

    fn append(&mut self, message: &LogMessage, usage: Option<LogUsage>) -> Result<()> {
        let mut rows = rows_of(message);
        if let (Some(usage), Some(first)) = (usage, rows.first_mut()) {
            let counters = serde_json::to_value(usage).unwrap_or(Value::Null);
            first.turn_usage = usage_of(&counters, "").map(|(usage, _)| usage);
            note(first, USAGE, counters);
        }
        let token = match self.token {
            Some(token) => Some(token),
            None => self.store.head(&self.session)?,
        };
        let Some(token) = token else {
            self.turn(&[], &rows, None)?;
            return Ok(());
        };
        let rows = AppendRows {
            rows: &rows,
            ..AppendRows::default()
        };
        self.token = Some(self.store.append_rows(&self.session, &token, rows)?);
        Ok(())
    }

    fn replace(&mut self, meta: &BoundaryMeta, working_set: &[LogMessage]) -> Result<()> {
        let locator = self.store.locator();
        let head = locator.head_generation(&self.session)?;
        let read = locator.read_session_transcript(&head)?;
        let stored = read.map(|it| it.read_session()).transpose()?.flatten();
        let prev = stored.map(|it| it.messages).unwrap_or_default();
        let mut next: Vec<TranscriptMessage> = Vec::new();
        for message in working_set.iter().filter(|message| !message.is_marker()) {
            next.extend(rows_of(message));
        }
        // Rows that are handed back as they were read are kept as the records that they are.
        for (new, old) in next.iter_mut().rev().zip(prev.iter().rev()) {
            if !says_the_same(new, old) {
                break;
            }
            new.clone_from(old);
        }
        let metadata = serde_json::to_value(meta).ok();
        self.turn(&prev, &next, metadata.as_ref())
    }

    fn turn(
        &mut self,
        prev: &[TranscriptMessage],
        next: &[TranscriptMessage],
        compaction: Option<&Value>,
    ) -> Result<()> {
        let locator = self.store.locator();
        let head = locator.head_generation(&self.session)?;
        let history = locator.open_session(&head, self.meta.clone())?;
        let mut turn = TranscriptTurn::new(prev, next, &self.meta);
        turn.compaction = compaction;
        history.append_turn(turn)?;
        self.token = self.store.head(&self.session)?;
        Ok(())
    }
}

/// Whether a row of a working set is a stored one, whatever was noted of that when it was stored.
fn says_the_same(new: &TranscriptMessage, old: &TranscriptMessage) -> bool {
    let said = |row: &TranscriptMessage, key: &str| -> Option<Value> {
        row.extra_metadata.as_ref()?.get(key).cloned()
    };
    new.role == old.role
        && new.content == old.content
        && new.tool_calls == old.tool_calls
        && new.tool_call_id == old.tool_call_id
        && new.tool_failure == old.tool_failure
        && ["reasoning_content", "reasoning_signature"]
            .iter()
            .all(|key| said(new, key) == said(old, key))
}
