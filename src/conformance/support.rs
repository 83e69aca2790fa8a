//! What the checks share: literal rows and metas, the two ways a call can end, and pictures of a store.

use std::fmt::Debug;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use uuid::Uuid;

use crate::{
    DisplayMessage, DisplayRecord, Error, ErrorKind, MessageUsage, Result, SessionRef,
    TranscriptHistory, TranscriptLocator, TranscriptMessage, TranscriptMeta, TranscriptPartial,
    TranscriptRead, TranscriptTurn, TurnUsage, UsageCostSource,
};

/// The time that stands in every literal meta; nothing compares it with a clock.
pub(super) const CREATED: &str = "2026-01-02T03:04:05Z";

/// A meta of the agent `agent` in the thread `thread`.
pub(super) fn meta(agent: &str, thread: &str) -> TranscriptMeta {
    let mut meta = TranscriptMeta::new(agent);
    CREATED.clone_into(&mut meta.created);
    CREATED.clone_into(&mut meta.updated);
    meta.thread_id = Some(thread.to_owned());
    meta
}

/// [`meta`] of an agent that has an id of its own.
pub(super) fn meta_with_id(agent: &str, agent_id: &str, thread: &str) -> TranscriptMeta {
    let mut meta = meta(agent, thread);
    meta.agent_id = Some(agent_id.to_owned());
    meta
}

pub(super) fn user(content: &str) -> TranscriptMessage {
    TranscriptMessage::user(content)
}

pub(super) fn assistant(content: &str) -> TranscriptMessage {
    TranscriptMessage::assistant(content)
}

/// A usage of `input` and `output` tokens that the provider billed at `cost` USD.
pub(super) fn charged(input: u64, output: u64, cost: f64) -> TurnUsage {
    TurnUsage {
        usage: MessageUsage {
            input,
            output,
            cost_usd: cost,
            cost_source: Some(UsageCostSource::Charged),
            ..MessageUsage::default()
        },
        ..TurnUsage::default()
    }
}

/// An assistant row that carries its own usage.
pub(super) fn answered(content: &str, usage: TurnUsage) -> TranscriptMessage {
    TranscriptMessage {
        turn_usage: Some(usage),
        ..assistant(content)
    }
}

/// The value of a call that has to succeed.
#[track_caller]
pub(super) fn must<T>(promise: &str, result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{promise}, but the call failed: {error}"),
    }
}

/// A call that has to be refused with `kind`.
#[track_caller]
pub(super) fn refused<T>(promise: &str, result: Result<T>, kind: ErrorKind) -> Error {
    match result {
        Ok(_) => panic!("{promise}, but the call succeeded instead of answering {kind:?}"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{promise}, but the error was: {error}");
            error
        }
    }
}

/// Opens `session` with the seed `meta("agent", "thread")`.
#[track_caller]
pub(super) fn open(
    locator: &dyn TranscriptLocator,
    session: &SessionRef,
) -> Arc<dyn TranscriptHistory> {
    open_with(locator, session, meta("agent", "thread"))
}

#[track_caller]
pub(super) fn open_with(
    locator: &dyn TranscriptLocator,
    session: &SessionRef,
    seed: TranscriptMeta,
) -> Arc<dyn TranscriptHistory> {
    must("a session opens", locator.open_session(session, seed))
}

#[track_caller]
pub(super) fn open_stem(locator: &dyn TranscriptLocator, stem: &str) -> Arc<dyn TranscriptHistory> {
    must(
        "a stem opens",
        locator.open_stem(stem, meta("agent", "thread")),
    )
}

/// The written transcript of `session` with one user row and the meta `seed`.
#[track_caller]
pub(super) fn written_with(
    locator: &dyn TranscriptLocator,
    session: &SessionRef,
    seed: TranscriptMeta,
) -> Arc<dyn TranscriptHistory> {
    let handle = open_with(locator, session, seed);
    must("a first append succeeds", handle.append(user("first")));
    handle
}

/// [`written_with`] the seed `meta("agent", "thread")`.
#[track_caller]
pub(super) fn written(
    locator: &dyn TranscriptLocator,
    session: &SessionRef,
) -> Arc<dyn TranscriptHistory> {
    written_with(locator, session, meta("agent", "thread"))
}

/// The live context, which has to be readable.
#[track_caller]
pub(super) fn messages(handle: &dyn TranscriptHistory) -> Vec<TranscriptMessage> {
    must("a live context can be read", handle.messages())
}

/// The contents of the live context.
#[track_caller]
pub(super) fn contents(handle: &dyn TranscriptHistory) -> Vec<String> {
    messages(handle)
        .into_iter()
        .map(|message| message.content)
        .collect()
}

/// Persists a turn whose live context becomes `next`, on top of what is stored.
#[track_caller]
pub(super) fn turn_to(
    handle: &dyn TranscriptHistory,
    next: &[TranscriptMessage],
    meta: &TranscriptMeta,
) {
    let prev = messages(handle);
    must(
        "a turn on the stored baseline succeeds",
        handle.append_turn(TranscriptTurn::new(&prev, next, meta)),
    );
}

/// Persists a turn that adds `rows` to what is stored.
#[track_caller]
pub(super) fn turn_with(
    handle: &dyn TranscriptHistory,
    rows: &[TranscriptMessage],
    meta: &TranscriptMeta,
) {
    let mut next = messages(handle);
    next.extend_from_slice(rows);
    turn_to(handle, &next, meta);
}

/// Reserves the successor of `session`.
#[track_caller]
pub(super) fn begin(
    locator: &dyn TranscriptLocator,
    session: &SessionRef,
) -> (SessionRef, Arc<dyn TranscriptHistory>) {
    must(
        "a written head can be succeeded",
        locator.begin_generation(session, meta("agent", "thread")),
    )
}

/// Seals the head of `session` and writes `next` as the first rows of its successor.
#[track_caller]
pub(super) fn succeed(
    locator: &dyn TranscriptLocator,
    session: &SessionRef,
    next: &[TranscriptMessage],
    meta: &TranscriptMeta,
) -> (SessionRef, Arc<dyn TranscriptHistory>) {
    let (successor, handle) = must(
        "a written head can be succeeded",
        locator.begin_generation(
            session,
            TranscriptMeta::new("the seed of a turn is not used"),
        ),
    );
    must(
        "the first write of a successor succeeds",
        handle.append_turn(TranscriptTurn::new(&[], next, meta)),
    );
    (successor, handle)
}

/// The display records of a written transcript.
#[track_caller]
pub(super) fn records<R: TranscriptRead + ?Sized>(handle: &R) -> Vec<DisplayRecord> {
    must("a display can be read", handle.read_display())
        .expect("a written transcript has a display")
        .records
}

/// The plain messages of the display, compactions left out.
#[track_caller]
pub(super) fn shown<R: TranscriptRead + ?Sized>(handle: &R) -> Vec<DisplayMessage> {
    records(handle)
        .into_iter()
        .filter_map(|record| match record {
            DisplayRecord::Message(message) => Some(*message),
            DisplayRecord::Compaction(_) => None,
        })
        .collect()
}

/// The rows of the live context with their identities, folded from the display as section 5 of the contract says.
#[track_caller]
pub(super) fn live_rows<R: TranscriptRead + ?Sized>(handle: &R) -> Vec<DisplayMessage> {
    let mut context = Vec::new();
    for record in records(handle) {
        match record {
            DisplayRecord::Message(message) if message.interrupted => {}
            DisplayRecord::Message(message) => context.push(*message),
            DisplayRecord::Compaction(marker) => context = marker.replacement,
        }
    }
    context
}

/// The record identities of the live context.
#[track_caller]
pub(super) fn live_uuids<R: TranscriptRead + ?Sized>(handle: &R) -> Vec<Uuid> {
    live_rows(handle).into_iter().map(|row| row.uuid).collect()
}

/// The stem of an optional look-up.
#[track_caller]
pub(super) fn found(result: Result<Option<Arc<dyn TranscriptRead>>>) -> Option<String> {
    must("a look-up succeeds", result).map(|read| read.stem().to_owned())
}

/// Everything that a store shows of some sessions and threads. Two equal pictures mean that nothing visible changed.
#[derive(PartialEq, Eq)]
pub(super) struct Picture(Vec<String>);

impl Picture {
    #[track_caller]
    pub(super) fn of(
        locator: &dyn TranscriptLocator,
        sessions: &[&SessionRef],
        threads: &[&str],
    ) -> Self {
        fn line(what: &str, value: &impl Debug) -> String {
            format!("{what}: {value:?}")
        }
        let mut lines = Vec::new();
        for session in sessions {
            let chain = must("a chain can be read", locator.session_chain(session));
            lines.push(line("chain", &chain));
            let head = must("a head can be read", locator.head_generation(session));
            lines.push(line("head", &head));
            for generation in chain.iter().chain([*session]) {
                let handle = open(locator, generation);
                lines.push(line("stem", &handle.stem()));
                lines.push(line(
                    "session",
                    &must("a read works", handle.read_session()),
                ));
                lines.push(line(
                    "display",
                    &must("a read works", handle.read_display()),
                ));
            }
        }
        for thread in threads {
            let listed = must(
                "a thread can be listed",
                locator.thread_transcripts(thread, None),
            );
            lines.push(line("transcripts", &listed));
            let spend = must("spend can be read", locator.thread_spend(thread));
            lines.push(line("spend", &spend));
            lines.push(line("root", &found(locator.root_for_thread(thread))));
        }
        lines.push(line("latest", &found(locator.latest_for_agent("agent"))));
        Self(lines)
    }

    /// Panics with the first difference.
    #[track_caller]
    pub(super) fn assert_same(&self, after: &Self, promise: &str) {
        for (before, after) in self.0.iter().zip(&after.0) {
            assert_eq!(before, after, "{promise}");
        }
        assert_eq!(self.0.len(), after.0.len(), "{promise}");
    }
}

/// Runs `call`, which has to be refused with `kind` and to change nothing of `session` and the thread `thread`.
#[track_caller]
pub(super) fn refused_without_trace<T>(
    locator: &dyn TranscriptLocator,
    session: &SessionRef,
    promise: &str,
    kind: ErrorKind,
    call: impl FnOnce() -> Result<T>,
) -> Error {
    let before = Picture::of(locator, &[session], &["thread"]);
    let error = refused(promise, call(), kind);
    before.assert_same(&Picture::of(locator, &[session], &["thread"]), promise);
    error
}

/// Every kind of write through `handle` has to be refused with `Sealed` and to change nothing.
#[track_caller]
pub(super) fn assert_sealed(
    locator: &dyn TranscriptLocator,
    session: &SessionRef,
    handle: &dyn TranscriptHistory,
) {
    let meta = meta("agent", "thread");
    let rows = messages(handle);
    let mut next = rows.clone();
    next.push(user("late"));
    let before = Picture::of(locator, &[session], &["thread"]);
    for (what, write) in [
        ("append", handle.append(user("late"))),
        ("replace", handle.replace(&[user("late")])),
        ("clear", handle.clear()),
        (
            "append_turn",
            handle.append_turn(TranscriptTurn::new(&rows, &next, &meta)),
        ),
        (
            "an append_turn that changes nothing",
            handle.append_turn(TranscriptTurn::new(&rows, &rows, &meta)),
        ),
        (
            "a stale append_turn",
            handle.append_turn(TranscriptTurn::new(&next, &next, &meta)),
        ),
        (
            "append_turn_with_partial",
            handle.append_turn_with_partial(
                TranscriptTurn::new(&rows, &rows, &meta),
                Some(&TranscriptPartial::new("half")),
            ),
        ),
    ] {
        refused(&format!("{what} is refused"), write, ErrorKind::Sealed);
    }
    let after = Picture::of(locator, &[session], &["thread"]);
    before.assert_same(&after, "a refused write changes nothing");
}

/// Drives a future on this thread with a waker of our own: no runtime takes part.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

/// Polls a future once; what it waits for may then happen on this same thread.
pub(super) fn poll_once<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}
