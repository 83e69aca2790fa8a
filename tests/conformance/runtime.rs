//! The async functions under a runtime: they depend on none, so they run on any. The checks drive them by hand.

use std::sync::Arc;

use serde_json::json;
use transcript_redb::background::append_background_message_in;
use transcript_redb::turn_lock::lock_session_turn;
use transcript_redb::{
    BackgroundAppend, BackgroundAppendOutcome, InMemoryTranscriptLocator, SessionRef,
    TranscriptHistory, TranscriptLocator, TranscriptMessage, TranscriptMeta, TranscriptTurn,
};

fn begun(locator: &dyn TranscriptLocator, session: &SessionRef) -> Arc<dyn TranscriptHistory> {
    let handle = locator
        .open_session(session, TranscriptMeta::new("agent"))
        .expect("a session opens");
    handle
        .append(TranscriptMessage::user("first"))
        .expect("a first append succeeds");
    handle
}

/// A turn reads, computes and persists under the lock, so none is ever stale; rows that come from elsewhere wait for
/// it. Without the lock the turns here would answer `Stale`.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn turns_and_background_rows_share_a_session_under_a_runtime() {
    const TURNS: usize = 25;
    let locator: Arc<dyn TranscriptLocator> = Arc::new(InMemoryTranscriptLocator::new());
    let session = SessionRef::root("k");
    let handle = begun(&*locator, &session);
    let mut tasks = Vec::new();
    for task in 0..4 {
        let (locator, session) = (Arc::clone(&locator), session.clone());
        tasks.push(tokio::spawn(async move {
            let handle = locator
                .open_session(&session, TranscriptMeta::new("agent"))
                .expect("a session opens");
            for turn in 0..TURNS {
                if task % 2 == 0 {
                    let _turn = lock_session_turn(&*locator, &session).await;
                    let prev = handle.messages().expect("a read works");
                    tokio::task::yield_now().await;
                    let mut next = prev.clone();
                    next.push(TranscriptMessage::assistant("answer"));
                    handle
                        .append_turn(TranscriptTurn::new(
                            &prev,
                            &next,
                            &TranscriptMeta::new("agent"),
                        ))
                        .expect("a turn under the lock is never stale");
                } else {
                    let append = BackgroundAppend::new(format!("{task}-{turn}"), json!(null));
                    let row = TranscriptMessage::assistant("done");
                    let outcome =
                        append_background_message_in(&*locator, &session, row, append).await;
                    assert_eq!(
                        outcome.expect("a background append is answered"),
                        BackgroundAppendOutcome::Appended { generation: 0 }
                    );
                }
            }
        }));
    }
    for task in tasks {
        task.await.expect("a task ends");
    }
    assert_eq!(
        handle.messages().expect("a read works").len(),
        1 + 4 * TURNS
    );
}

/// A host gives up waiting: `select!` and timeouts drop the future.
#[tokio::test]
async fn a_wait_for_the_turn_lock_can_be_given_up_under_a_runtime() {
    let locator = InMemoryTranscriptLocator::new();
    let session = SessionRef::root("k");
    let handle = begun(&locator, &session);
    let turn = lock_session_turn(&locator, &session).await;
    let append = append_background_message_in(
        &locator,
        &session,
        TranscriptMessage::assistant("done"),
        BackgroundAppend::new("job", json!(null)),
    );
    tokio::select! {
        biased;
        _ = append => panic!("the turn lock is held, but the append did not wait"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(handle.messages().expect("a read works").len(), 1);
    drop(turn);
    assert!(lock_session_turn(&locator, &session).await.is_some());
}
