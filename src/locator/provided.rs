//! What the provided methods of the traits are made of.

use std::sync::Arc;

use super::{TranscriptHistory, TranscriptLocator};
use crate::session::split_generation;
use crate::{ErrorKind, Result, SessionTranscript, TranscriptMeta};

/// How often a provided method repeats what another writer got in the way of.
const RETRIES: usize = 3;

/// Calls, and calls again while another writer moved the baseline or the head in between.
pub(super) fn retried<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..RETRIES {
        match call() {
            Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::Sealed) => {}
            answer => return answer,
        }
    }
    call()
}

/// The seed of a handle that is only read or appended to when something is written already.
pub(super) fn no_seed() -> TranscriptMeta {
    TranscriptMeta::new("")
}

/// The newest written generation of the session that a stem belongs to, looked for from the stem's own generation up.
pub(super) fn head_of_stem<L: TranscriptLocator + ?Sized>(
    locator: &L,
    stem: &str,
) -> Result<Option<(Arc<dyn TranscriptHistory>, SessionTranscript)>> {
    let (session, generation) = split_generation(stem);
    let mut head = None;
    let mut stem = stem.to_owned();
    for next in generation.saturating_add(1).. {
        let history = locator.open_stem(&stem, no_seed())?;
        let Some(stored) = history.read_session()? else {
            break;
        };
        head = Some((history, stored));
        stem = format!("{session}.g{next}");
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        BackgroundAppend, BackgroundAppendOutcome, DisplayRecord, Error, InMemoryTranscriptLocator,
        MessageUsage, SessionRef, ThreadSpend, ThreadTranscripts, TranscriptMessage,
        TranscriptPartial, TranscriptRead, TranscriptTurn, TruncateCut, TurnUsage,
    };

    /// A locator with nothing but what a store must implement.
    struct Minimal(InMemoryTranscriptLocator);

    impl TranscriptLocator for Minimal {
        fn latest_for_agent(&self, agent: &str) -> Result<Option<Arc<dyn TranscriptRead>>> {
            self.0.latest_for_agent(agent)
        }

        fn root_for_thread_scoped(
            &self,
            thread_id: &str,
            agent_id: Option<&str>,
        ) -> Result<Option<Arc<dyn TranscriptRead>>> {
            self.0.root_for_thread_scoped(thread_id, agent_id)
        }

        fn thread_transcripts(
            &self,
            thread_id: &str,
            agent_id: Option<&str>,
        ) -> Result<ThreadTranscripts> {
            self.0.thread_transcripts(thread_id, agent_id)
        }

        fn open_stem(
            &self,
            stem: &str,
            seed: TranscriptMeta,
        ) -> Result<Arc<dyn TranscriptHistory>> {
            self.0.open_stem(stem, seed)
        }

        fn open_session(
            &self,
            session: &SessionRef,
            seed: TranscriptMeta,
        ) -> Result<Arc<dyn TranscriptHistory>> {
            self.0.open_session(session, seed)
        }

        fn begin_generation(
            &self,
            session: &SessionRef,
            seed: TranscriptMeta,
        ) -> Result<(SessionRef, Arc<dyn TranscriptHistory>)> {
            self.0.begin_generation(session, seed)
        }

        fn begin_generation_from_baseline(
            &self,
            session: &SessionRef,
            seed: TranscriptMeta,
            baseline: &[TranscriptMessage],
        ) -> Result<(SessionRef, Arc<dyn TranscriptHistory>)> {
            self.0
                .begin_generation_from_baseline(session, seed, baseline)
        }
    }

    fn meta(agent: &str) -> TranscriptMeta {
        TranscriptMeta::new(agent).with_thread_id("t")
    }

    fn answer(content: &str, input: u64) -> TranscriptMessage {
        TranscriptMessage::assistant(content).with_turn_usage(TurnUsage {
            usage: MessageUsage {
                input,
                cost_usd: 0.1,
                ..MessageUsage::default()
            },
            ..TurnUsage::default()
        })
    }

    /// Three generations of a session with a compaction in the first, and a child of two generations.
    fn filled() -> (Minimal, SessionRef) {
        let locator = Minimal(InMemoryTranscriptLocator::new());
        let session = SessionRef::root("s");
        let history = locator.open_session(&session, meta("root")).unwrap();
        history.append(TranscriptMessage::user("q")).unwrap();
        history.append(answer("a", 1)).unwrap();
        history.append(answer("b", 2)).unwrap();
        let prev = history.messages().unwrap();
        let next = [prev[0].clone(), answer("sum", 4), prev[2].clone()];
        let meta = meta("root");
        let used = answer("", 8).turn_usage.unwrap();
        let turn = TranscriptTurn::new(&prev, &next, &meta).with_turn_usage(&used);
        history.append_turn(turn).unwrap();
        for cut in [TruncateCut::BeforeIndex(2), TruncateCut::LastAssistantTurn] {
            locator
                .truncate_into_next_generation(&session, cut, meta.clone())
                .unwrap();
        }
        let child = SessionRef::child_of(&session, "c");
        let history = locator
            .open_session(&child, TranscriptMeta::new("worker"))
            .unwrap();
        history.append(answer("a", 16)).unwrap();
        let (_, successor) = locator
            .begin_generation(&child, TranscriptMeta::new("head"))
            .unwrap();
        successor.append(answer("b", 32)).unwrap();
        (locator, session)
    }

    #[test]
    fn the_provided_walk_counts_every_usage_once_as_a_store_with_totals_does() {
        let (locator, _) = filled();
        let spend = locator.thread_spend("t").unwrap();
        assert_eq!(spend, locator.0.thread_spend("t").unwrap());
        assert_eq!(spend.root.input_tokens, 1 + 2 + 4 + 8);
        let (child, runs) = &spend.subagents["head"];
        assert_eq!((child.input_tokens, *runs), (16 + 32, 1));
        assert_eq!(locator.thread_spend(" ").unwrap(), ThreadSpend::default());
    }

    #[test]
    fn the_provided_walks_find_head_and_chain_from_any_generation() {
        let (locator, session) = filled();
        let chain: Vec<_> = (0..3).map(|n| session.with_generation(n)).collect();
        for generation in [0, 1, 2, 9] {
            let given = session.with_generation(generation);
            assert_eq!(locator.session_chain(&given).unwrap(), chain);
            assert_eq!(locator.head_generation(&given).unwrap(), chain[2]);
            assert_eq!(locator.session_exists(&given).unwrap(), generation < 3);
        }
        let unwritten = SessionRef::root("other").next_generation();
        assert_eq!(locator.head_generation(&unwritten).unwrap(), unwritten);
        assert_eq!(locator.session_chain(&unwritten).unwrap(), []);
    }

    #[test]
    fn a_provided_background_append_does_what_an_atomic_one_does() {
        let (locator, session) = filled();
        let row = || TranscriptMessage::assistant("report");
        let append = BackgroundAppend::new("k", json!("job"));
        let outcome = locator.append_background(&session, row(), &append).unwrap();
        assert_eq!(outcome, BackgroundAppendOutcome::Appended { generation: 2 });
        let outcome = locator.append_background(&session, row(), &append).unwrap();
        assert_eq!(
            outcome,
            BackgroundAppendOutcome::Duplicate { generation: 2 }
        );
        let expecting = append.expecting_generation(1);
        let outcome = locator
            .append_background(&session, row(), &expecting)
            .unwrap();
        let stale = BackgroundAppendOutcome::StaleGeneration {
            expected: 1,
            head: 2,
        };
        assert_eq!(outcome, stale);
        let other = SessionRef::root("other");
        let outcome = locator
            .append_background(&other, row(), &expecting)
            .unwrap();
        assert_eq!(outcome, BackgroundAppendOutcome::NoSession);

        let head = locator
            .open_session(&session.with_generation(2), meta("root"))
            .unwrap();
        let records = head.read_display().unwrap().unwrap().records;
        let Some(DisplayRecord::Message(shown)) = records.last() else {
            panic!("no row");
        };
        assert!(shown.ts.is_some());
        assert_eq!(shown.background.as_ref().unwrap().provenance, json!("job"));
    }

    #[test]
    fn a_provided_partial_goes_to_the_head_and_leaves_its_context_alone() {
        let (locator, session) = filled();
        let head = locator
            .open_session(&session.with_generation(2), meta("root"))
            .unwrap();
        let before = head.read_session().unwrap();
        let partial = TranscriptPartial::new("half");
        let append = |thread, partial: &TranscriptPartial| {
            locator
                .append_interrupted_partial(thread, None, partial, Some("r"))
                .unwrap()
        };
        assert!(append(" t ", &partial));
        assert!(!append("t", &TranscriptPartial::new("")));
        assert!(!append("other", &partial));
        assert!(!append(" ", &partial));
        assert_eq!(head.read_session().unwrap(), before);
        let records = head.read_display().unwrap().unwrap().records;
        let Some(DisplayRecord::Message(shown)) = records.last() else {
            panic!("no row");
        };
        assert!(shown.interrupted);
        assert_eq!(shown.request_id.as_deref(), Some("r"));
    }

    #[test]
    fn a_reserved_head_refuses_what_the_provided_methods_would_write() {
        let (locator, session) = filled();
        let head = session.with_generation(2);
        let _reserved = locator.begin_generation(&head, meta("root")).unwrap();
        let partial = TranscriptPartial::new("half");
        let refused = locator.append_interrupted_partial("t", None, &partial, None);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Sealed);
        let append = BackgroundAppend::new("k", json!(null));
        let refused =
            locator.append_background(&session, TranscriptMessage::assistant("a"), &append);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Sealed);
    }

    #[test]
    fn a_page_is_cut_by_sequence_and_says_whether_there_is_more() {
        let (locator, session) = filled();
        let history = locator.open_session(&session, meta("root")).unwrap();
        let all = history.read_display().unwrap().unwrap().records;
        assert_eq!(all.len(), 4);
        let page = |before, limit| {
            let slice = history.read_display_before(before, limit).unwrap().unwrap();
            let numbers: Vec<_> = slice.records.iter().map(|(number, _)| *number).collect();
            (numbers, slice.more)
        };
        assert_eq!(page(None, 3), (vec![1, 2, 3], true));
        assert_eq!(page(Some(1), 3), (vec![0], false));
        assert_eq!(page(Some(0), 3), (vec![], false));
        assert_eq!(page(Some(u64::MAX), usize::MAX), (vec![0, 1, 2, 3], false));
        assert_eq!(page(None, 0), (vec![], true));
    }

    #[test]
    fn what_another_writer_got_in_the_way_of_is_repeated_three_times() {
        let answer_after = |failures: usize, error: fn() -> Error| {
            let mut calls = 0;
            let answer = retried(|| {
                calls += 1;
                if calls <= failures {
                    Err(error())
                } else {
                    Ok(())
                }
            });
            (calls, answer.map_err(|error| error.kind()))
        };
        let sealed = || Error::Sealed {
            stem: String::new(),
        };
        let reserved = || Error::Reserved {
            stem: String::new(),
        };
        assert_eq!(answer_after(3, sealed), (4, Ok(())));
        assert_eq!(answer_after(4, sealed), (4, Err(ErrorKind::Sealed)));
        assert_eq!(answer_after(1, reserved), (1, Err(ErrorKind::Reserved)));
    }
}
