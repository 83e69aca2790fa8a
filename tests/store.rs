//! What a store offers beyond the traits: records, tokens, spend, and the limits of what it takes.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helper functions too"
)]

use transcript_redb::{
    AppendRows, ErrorKind, HeadToken, MessageUsage, SessionRef, SpendGroup, SpendQuery, Store,
    TranscriptLocator, TranscriptMessage, TranscriptMeta, TranscriptPartial, TranscriptTurn,
    TurnUsage,
};

fn store() -> Store {
    Store::in_memory().expect("a store in memory opens")
}

fn meta() -> TranscriptMeta {
    TranscriptMeta::new("coder").with_thread_id("thread")
}

fn usage(model: &str, ts: &str, input: u64) -> TurnUsage {
    TurnUsage {
        model: model.to_owned(),
        ts: ts.to_owned(),
        usage: MessageUsage {
            input,
            ..MessageUsage::default()
        },
        ..TurnUsage::default()
    }
}

/// A session of so many rows, "0" and on.
fn numbered(store: &Store, session: &SessionRef, rows: usize) {
    let history = store.locator().open_session(session, meta()).unwrap();
    let next: Vec<_> = (0..rows)
        .map(|row| TranscriptMessage::user(row.to_string()))
        .collect();
    let meta = meta();
    history
        .append_turn(TranscriptTurn::new(&[], &next, &meta))
        .unwrap();
}

#[test]
fn records_behind_a_cursor_are_the_same_on_a_used_iterator() {
    let store = store();
    let session = SessionRef::root("session");
    numbered(&store, &session, 300);
    let all: Vec<_> = store
        .records(&session)
        .unwrap()
        .map(|record| record.unwrap().uuid)
        .collect();
    assert_eq!(all.len(), 300);
    for (from_front, from_back) in [(0, 0), (1, 0), (0, 1), (200, 3), (10, 290)] {
        let mut records = store.records(&session).unwrap();
        for _ in 0..from_front {
            records.next().unwrap().unwrap();
        }
        for _ in 0..from_back {
            records.next_back().unwrap().unwrap();
        }
        let behind: Vec<_> = records
            .after(all[250])
            .unwrap()
            .map(|record| record.unwrap().uuid)
            .collect();
        assert_eq!(behind, all[251..], "{from_front} and {from_back} were read");
    }
    let other = SessionRef::root("other");
    numbered(&store, &other, 1);
    let stranger = store.records(&other).unwrap().next().unwrap().unwrap();
    let refused = store.records(&session).unwrap().after(stranger.uuid);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidCursor);
}

#[test]
fn a_token_never_drops_usage_or_text_for_want_of_rows() {
    let store = store();
    let session = SessionRef::root("session");
    numbered(&store, &session, 1);
    let token = store.head(&session).unwrap().unwrap();
    let nothing = AppendRows::default();
    assert_eq!(store.append_rows(&session, &token, nothing).unwrap(), token);
    let usage = usage("m", "", 5);
    let partial = TranscriptPartial::new("cut off");
    for rows in [
        AppendRows {
            usage: Some(&usage),
            ..nothing
        },
        AppendRows {
            partial: Some(&partial),
            ..nothing
        },
    ] {
        let refused = store.append_rows(&session, &token, rows).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidMessage);
    }
    assert_eq!(store.head(&session).unwrap(), Some(token));
}

#[test]
fn a_token_of_a_session_that_was_never_written_is_told_so() {
    let store = store();
    let token = HeadToken {
        incarnation: 1,
        generation: 0,
        seq: 1,
    };
    let rows = [TranscriptMessage::user("hello")];
    let rows = AppendRows {
        rows: &rows,
        ..AppendRows::default()
    };
    let refused = store.append_rows(&SessionRef::root("nobody"), &token, rows);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotWritten);
}

#[test]
fn spend_comes_sorted_by_its_groups_in_the_order_asked_for() {
    let store = store();
    let history = store
        .locator()
        .open_session(&SessionRef::root("session"), meta())
        .unwrap();
    for (model, ts, input) in [
        ("b", "2026-01-01T10:00:00Z", 1),
        ("a", "2026-01-02T10:00:00Z", 2),
        ("a", "2026-01-01T23:59:59Z", 3),
    ] {
        let row = TranscriptMessage::assistant("done").with_turn_usage(usage(model, ts, input));
        history.append(row).unwrap();
    }
    let sums = |group_by: &[SpendGroup]| -> Vec<u64> {
        let query = SpendQuery {
            group_by: group_by.to_vec(),
            ..SpendQuery::default()
        };
        let rows = store.spend(query).unwrap();
        rows.into_iter().map(|row| row.input_tokens).collect()
    };
    assert_eq!(sums(&[SpendGroup::Day, SpendGroup::Model]), [3, 1, 2]);
    assert_eq!(sums(&[SpendGroup::Model, SpendGroup::Day]), [3, 2, 1]);
    assert_eq!(sums(&[SpendGroup::Day]), [4, 2]);
    assert_eq!(sums(&[]), [6]);
}

#[test]
fn a_stem_with_a_burden_of_ancestors_is_refused_and_any_other_is_found() {
    let store = store();
    let locator = store.locator();
    let deep = |levels: usize| format!("r{}", "__x".repeat(levels));
    for stem in [deep(257), deep(300_000)] {
        let refused = locator.open_stem(&stem, meta());
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidId);
    }
    let child = locator.open_stem(&deep(256), meta()).unwrap();
    let row = TranscriptMessage::assistant("found").with_turn_usage(usage("m", "", 7));
    child.append(row).unwrap();
    let middle = locator.open_stem(&deep(255), meta()).unwrap();
    middle.append(TranscriptMessage::user("between")).unwrap();
    let root = locator.open_stem(&deep(0), meta()).unwrap();
    root.append(TranscriptMessage::user("above")).unwrap();
    let listed = locator.thread_transcripts("thread", None).unwrap();
    assert_eq!(listed.subagents.len(), 2);
    let spend = locator.thread_spend("thread").unwrap();
    assert_eq!(spend.subagents["coder"].0.input_tokens, 7);
}

#[test]
fn rows_that_were_all_edited_are_new_or_revisions_by_their_usage() {
    let store = store();
    let session = SessionRef::root("session");
    let history = store.locator().open_session(&session, meta()).unwrap();
    let meta = meta();
    let first: Vec<_> = (0..400)
        .map(|row| {
            TranscriptMessage::assistant(format!("long text {row}"))
                .with_turn_usage(usage("m", "", row))
        })
        .collect();
    history
        .append_turn(TranscriptTurn::new(&[], &first, &meta))
        .unwrap();
    let stored = history.messages().unwrap();
    let next: Vec<_> = stored
        .iter()
        .enumerate()
        .map(|(index, row)| {
            let mut row = row.clone();
            row.content = "elided".to_owned();
            if index % 2 == 1 {
                row.turn_usage = None;
            }
            row
        })
        .collect();
    history
        .append_turn(TranscriptTurn::new(&stored, &next, &meta))
        .unwrap();
    assert_eq!(history.messages().unwrap(), next);
    let revisions = store
        .records(&session)
        .unwrap()
        .filter(|record| {
            let message = record.as_ref().unwrap().message.as_ref();
            message.is_some_and(|message| message.revises.is_some())
        })
        .count();
    assert_eq!(revisions, 200, "a row that kept its usage revises its own");
    let spend = store.locator().thread_spend("thread").unwrap();
    assert_eq!(spend.root.turns, 400, "no revision counts again");
}
