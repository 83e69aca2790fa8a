//! The keys of background appends: what makes a row a duplicate, and what frees its key (contract section 6).

use serde_json::json;

use super::background::{append, appended, deliver, duplicate};
use super::support::{
    assistant, contents, live_uuids, messages, meta, must, open, records, succeed, turn_to,
    turn_with, user, written,
};
use super::{Check, Factory};
use crate::{BACKGROUND_METADATA_KEY, BackgroundAppend, SessionRef};

pub(super) const CHECKS: &[Check] = table![
    a_used_key_is_a_duplicate,
    a_duplicate_is_decided_by_the_key_alone,
    a_key_is_compared_as_it_stands,
    keys_belong_to_one_session,
    a_compaction_that_drops_a_row_frees_its_key,
    a_retained_row_still_holds_its_key,
    a_successor_without_the_row_has_the_key_free,
    a_retained_row_holds_its_key_in_the_successor,
    a_key_that_a_successor_drops_is_free_whatever_it_kept,
    a_clear_frees_every_key,
    a_row_that_came_by_another_call_holds_its_key,
    a_malformed_origin_holds_no_key,
];

/// The same job may be delivered again.
pub fn a_used_key_is_a_duplicate(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    deliver(&*locator, &session, "one", &append("job-1"));
    deliver(&*locator, &session, "two", &append("job-2"));
    let before = records(&*handle);
    for key in ["job-1", "job-2", "job-1"] {
        assert_eq!(
            deliver(&*locator, &session, "again", &append(key)),
            duplicate(0)
        );
    }
    assert_eq!(records(&*handle), before);
}

/// Text and provenance do not matter.
pub fn a_duplicate_is_decided_by_the_key_alone(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    deliver(&*locator, &session, "one", &append("job"));
    let other = BackgroundAppend::new("job", json!("another provenance"));
    assert_eq!(
        deliver(&*locator, &session, "another text", &other),
        duplicate(0)
    );
    assert_eq!(
        deliver(&*locator, &session, "one", &append("another job")),
        appended(0),
        "an equal text under another key is another row"
    );
    assert_eq!(contents(&*handle), ["first", "one", "one"]);
}

/// Untrimmed, and by every byte.
pub fn a_key_is_compared_as_it_stands(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    for key in ["job", " job", "job ", "JOB", "job\0", "jo\u{0}b", "🦀"] {
        assert_eq!(
            deliver(&*locator, &session, "done", &append(key)),
            appended(0),
            "{key:?}"
        );
        assert_eq!(
            deliver(&*locator, &session, "done", &append(key)),
            duplicate(0),
            "{key:?}"
        );
    }
}

/// Another session may use the same key.
pub fn keys_belong_to_one_session(factory: Factory<'_>) {
    let locator = factory();
    for session in [
        SessionRef::root("k"),
        SessionRef::scoped("k", "a"),
        SessionRef::child_of(&SessionRef::root("k"), "c"),
    ] {
        written(&*locator, &session);
        assert_eq!(
            deliver(&*locator, &session, "done", &append("job")),
            appended(0)
        );
    }
}

/// The key is held by the live context, not by the log.
pub fn a_compaction_that_drops_a_row_frees_its_key(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    deliver(&*locator, &session, "done", &append("job"));
    turn_to(&*handle, &[assistant("summary")], &meta("agent", "thread"));
    assert_eq!(
        deliver(&*locator, &session, "done again", &append("job")),
        appended(0)
    );
    assert_eq!(
        deliver(&*locator, &session, "done again", &append("job")),
        duplicate(0)
    );
    assert_eq!(contents(&*handle), ["summary", "done again"]);
}

/// A compaction that keeps the row keeps the key.
pub fn a_retained_row_still_holds_its_key(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    deliver(&*locator, &session, "done", &append("job"));
    let rows = messages(&*handle);
    turn_to(
        &*handle,
        &[assistant("summary"), rows[1].clone()],
        &meta("agent", "thread"),
    );
    assert_eq!(
        deliver(&*locator, &session, "again", &append("job")),
        duplicate(0)
    );
    must("a replacement succeeds", handle.replace(&rows[1..]));
    assert_eq!(
        deliver(&*locator, &session, "again", &append("job")),
        duplicate(0)
    );
}

/// The context of the new head decides.
pub fn a_successor_without_the_row_has_the_key_free(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    deliver(&*locator, &session, "done", &append("job"));
    let (_, handle) = succeed(&*locator, &session, &[user("on")], &meta("agent", "thread"));
    assert_eq!(
        deliver(&*locator, &session, "again", &append("job")),
        appended(1)
    );
    assert_eq!(contents(&*handle), ["on", "again"]);
}

/// The kept row is the same row, with its origin.
pub fn a_retained_row_holds_its_key_in_the_successor(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    deliver(&*locator, &session, "done", &append("job"));
    let rows = messages(&*first);
    let (_, handle) = succeed(&*locator, &session, &rows[1..], &meta("agent", "thread"));
    assert_eq!(live_uuids(&*handle), live_uuids(&*first)[1..]);
    assert_eq!(
        deliver(&*locator, &session, "again", &append("job")),
        duplicate(1)
    );
}

/// Rows of the predecessor that stand in its context are not the row that held the key.
pub fn a_key_that_a_successor_drops_is_free_whatever_it_kept(factory: Factory<'_>) {
    for kept in 0..=6 {
        let locator = factory();
        let session = SessionRef::root("k");
        let first = open(&*locator, &session);
        let rows = ["0", "1", "2", "3", "4", "5"].map(user);
        turn_with(&*first, &rows, &meta("agent", "thread"));
        let rows = messages(&*first);
        let (_, next) = succeed(
            &*locator,
            &session,
            &rows[rows.len() - kept..],
            &meta("agent", "thread"),
        );
        let without = messages(&*next);
        for text in ["one", "two"] {
            assert_eq!(
                deliver(&*locator, &session, text, &append(text)),
                appended(1)
            );
        }
        turn_to(&*next, &without, &meta("agent", "thread"));
        for text in ["one", "two"] {
            assert_eq!(
                deliver(&*locator, &session, text, &append(text)),
                appended(1),
                "{kept} rows were kept"
            );
        }
    }
}

/// A cleared context holds nothing.
pub fn a_clear_frees_every_key(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    deliver(&*locator, &session, "done", &append("job"));
    must("a clear succeeds", handle.clear());
    assert_eq!(
        deliver(&*locator, &session, "again", &append("job")),
        appended(0)
    );
}

/// Every stored row with a well-formed origin holds its key, whatever its role.
pub fn a_row_that_came_by_another_call_holds_its_key(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = open(&*locator, &session);
    let origin = |key: &str| json!({BACKGROUND_METADATA_KEY: {"idempotency_key": key}});
    must(
        "an append succeeds",
        handle.append(assistant("x").with_extra_metadata(origin("appended"))),
    );
    turn_with(
        &*handle,
        &[user("y").with_extra_metadata(origin("turned"))],
        &meta("agent", "thread"),
    );
    for key in ["appended", "turned"] {
        assert_eq!(
            deliver(&*locator, &session, "done", &append(key)),
            duplicate(0),
            "{key}"
        );
    }
}

/// An origin without a key that is a string is data like any other.
pub fn a_malformed_origin_holds_no_key(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = open(&*locator, &session);
    for origin in [
        json!("job"),
        json!({"idempotency_key": 1}),
        json!({"key": "job"}),
    ] {
        let row = assistant("x").with_extra_metadata(json!({BACKGROUND_METADATA_KEY: origin}));
        must("an append succeeds", handle.append(row));
    }
    assert_eq!(
        deliver(&*locator, &session, "done", &append("job")),
        appended(0)
    );
}
