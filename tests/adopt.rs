//! What adopting the transcripts of before there were sessions promises: all of them or nothing, once, and no cost twice.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

use std::sync::{Arc, Barrier};
use std::thread;

use transcript_redb::serde_json::json;
use transcript_redb::spend::thread_spend_in;
use transcript_redb::testkit::{DiskCall, SimDisk};
use transcript_redb::{
    AdoptedSource, Adoption, BackgroundAppend, BackgroundAppendOutcome, DisplayRecord, ErrorKind,
    MessageUsage, SessionRef, SpendGroup, SpendQuery, SpendRow, Store, ThreadSpend,
    TranscriptLocator, TranscriptMessage, TranscriptMeta, TranscriptPartial, TranscriptTurn,
    TurnUsage, UsageCostSource, interchange,
};

const THREAD: &str = "th-7";

fn session() -> SessionRef {
    SessionRef::scoped(THREAD, "planner")
}

fn seed() -> TranscriptMeta {
    TranscriptMeta::new("planner").with_agent_id("planner")
}

fn usage(input: u64) -> TurnUsage {
    TurnUsage {
        provider: "acme".to_owned(),
        model: "acme-1".to_owned(),
        usage: MessageUsage {
            input,
            output: input / 10,
            cost_usd: 0.001,
            cost_source: Some(UsageCostSource::Charged),
            ..MessageUsage::default()
        },
        ..TurnUsage::default()
    }
}

/// A header of before there were identities.
fn old(agent: &str, created: &str) -> TranscriptMeta {
    TranscriptMeta {
        turn_count: 2,
        input_tokens: 90,
        output_tokens: 9,
        cached_input_tokens: 1,
        charged_amount_usd: 0.25,
        prefix_message_count: Some(created.len()),
        ..TranscriptMeta::new(agent)
            .with_agent_id(agent)
            .with_thread_id(THREAD)
            .with_created(created)
            .with_updated(created)
    }
}

/// Writes a turn of two rows, which cost something.
fn turn(store: &Store, stem: &str, meta: &TranscriptMeta, text: &str, tools: &str) {
    let history = store.locator().open_stem(stem, meta.clone()).unwrap();
    let stored = history.messages().unwrap();
    let mut next = stored.clone();
    next.push(TranscriptMessage::user(format!("{text}?")));
    next.push(TranscriptMessage::assistant(format!("{text}.")));
    let (spent, tools) = (usage(90), json!([{ "name": tools }]));
    let mut turn = TranscriptTurn::new(&stored, &next, meta);
    turn.turn_usage = Some(&spent);
    turn.request_id = Some(text);
    turn.tools = Some(&tools);
    history.append_turn(turn).unwrap();
}

/// Two transcripts of the agent, the later written first; one of another agent, thread and kind each.
fn fill(store: &Store) {
    let late = old("planner", "2026-03-02T09:30:00+01:00");
    let early = old("planner", "2026-03-02T08:00:00Z");
    turn(store, "1700_planner", &late, "late", "late");
    turn(store, "1600_planner", &early, "gone", "early");
    let history = store
        .locator()
        .open_stem("1600_planner", early.clone())
        .unwrap();
    history
        .replace(&[TranscriptMessage::system("summary")])
        .unwrap();
    turn(store, "1600_planner", &early, "early", "early");
    store
        .locator()
        .append_interrupted_partial(THREAD, None, &TranscriptPartial::new("half"), None)
        .unwrap();
    turn(
        store,
        "1500_coder",
        &old("coder", "2026-03-01T08:00:00Z"),
        "other",
        "x",
    );
    turn(store, "1600_planner__1_planner", &early, "child", "x");
    let elsewhere = early.clone().with_thread_id("th-8");
    turn(store, "1400_planner", &elsewhere, "elsewhere", "x");
}

fn adopt(store: &Store) -> Option<Adoption> {
    store.adopt(&session(), THREAD, seed()).unwrap()
}

fn texts(store: &Store, session: &SessionRef) -> Vec<String> {
    let history = store.locator().open_session(session, seed()).unwrap();
    let rows = history.messages().unwrap().into_iter();
    rows.map(|row| row.content).collect()
}

/// What the thread cost: from the totals, recounted from the rows, and by hour.
fn spend(store: &Store) -> (ThreadSpend, ThreadSpend, Vec<SpendRow>) {
    let totals = store.locator().thread_spend(THREAD).unwrap();
    let recounted = thread_spend_in(&store.locator(), THREAD).unwrap();
    let query = SpendQuery {
        group_by: vec![SpendGroup::Session, SpendGroup::Model, SpendGroup::Hour],
        ..SpendQuery::default()
    };
    (totals, recounted, store.spend(query).unwrap())
}

/// All that the transcripts of before show.
fn sources(store: &Store) -> String {
    let stems = ["1700_planner", "1600_planner", "1500_coder", "1400_planner"];
    let shown = stems.map(|stem| {
        let history = store.locator().open_stem(stem, seed()).unwrap();
        (
            history.read_session().unwrap(),
            history.read_display().unwrap(),
            store
                .records_of_stem(stem)
                .unwrap()
                .map(Result::unwrap)
                .collect::<Vec<_>>(),
        )
    });
    format!("{shown:?}")
}

#[test]
fn the_live_rows_of_older_transcripts_are_the_beginning_of_the_session() {
    let store = Store::in_memory().unwrap();
    fill(&store);
    let before = sources(&store);
    let adoption = adopt(&store).expect("there is something to adopt");
    assert_eq!(
        texts(&store, &session()),
        ["summary", "early?", "early.", "late?", "late."]
    );
    assert_eq!((adoption.session, adoption.sources.len()), (session(), 2));
    let source = |stem: &str, created: &str, rows| AdoptedSource {
        stem: stem.to_owned(),
        created: created.to_owned(),
        rows,
    };
    assert_eq!(
        adoption.sources,
        [
            source("1600_planner", "2026-03-02T08:00:00Z", 3),
            source("1700_planner", "2026-03-02T09:30:00+01:00", 2),
        ]
    );
    let read = store.locator().read_session_transcript(&session()).unwrap();
    let read = read.unwrap().read_session().unwrap().unwrap();
    assert_eq!(read.meta, adoption.meta);
    assert_eq!(
        read.meta,
        TranscriptMeta {
            session_id: Some(session().session_id()),
            thread_id: Some(THREAD.to_owned()),
            turn_count: 4,
            input_tokens: 180,
            output_tokens: 18,
            cached_input_tokens: 2,
            charged_amount_usd: 0.5,
            prefix_message_count: Some("2026-03-02T08:00:00Z".len()),
            ..seed()
                .with_created("2026-03-02T08:00:00Z")
                .with_updated("2026-03-02T09:30:00+01:00")
        }
    );
    assert_eq!(read.tools, Some(json!([{ "name": "late" }])));
    assert_eq!(sources(&store), before);
    let listed = store.locator().thread_transcripts(THREAD, None).unwrap();
    assert_eq!(listed.roots.len(), 1);
    assert_eq!(listed.pre_identity.len(), 3);
}

#[test]
fn adopted_rows_read_as_they_stood_and_name_the_rows_that_they_were() {
    let store = Store::in_memory().unwrap();
    let stem = "1600_planner";
    turn(
        &store,
        stem,
        &old("planner", "2026-03-02T08:00:00Z"),
        "a",
        "t",
    );
    let history = store.locator().open_stem(stem, seed()).unwrap();
    history.append(TranscriptMessage::user("appended")).unwrap();
    adopt(&store).unwrap();
    let shown = |stem: &str| {
        let history = store.locator().open_stem(stem, seed()).unwrap();
        let display = history.read_display().unwrap().unwrap();
        let rows = display.records.into_iter().map(|record| match record {
            DisplayRecord::Message(row) => *row,
            DisplayRecord::Compaction(_) => panic!("nothing was compacted"),
        });
        rows.collect::<Vec<_>>()
    };
    let (were, are) = (shown(stem), shown(&session().session_id()));
    assert_eq!(were.len(), 3);
    for (was, is) in were.iter().zip(&are) {
        assert_eq!(is.revises, Some(was.uuid));
        let mut same = is.clone();
        (same.uuid, same.revises) = (was.uuid, None);
        assert_eq!(same, *was);
    }
}

#[test]
fn what_the_rows_cost_is_counted_once() {
    let store = Store::in_memory().unwrap();
    fill(&store);
    let (totals, recounted, hours) = spend(&store);
    assert_eq!(totals.root.turns, 4);
    adopt(&store).unwrap();
    let after = spend(&store);
    let money = |spend: &ThreadSpend| ThreadSpend {
        updated: None,
        ..spend.clone()
    };
    assert_eq!(money(&after.0), money(&totals));
    assert_eq!(money(&after.1), money(&recounted));
    assert_eq!(after.2, hours);

    // Nor does the conversation count it when it goes on and is compacted.
    let history = store.locator().open_session(&session(), seed()).unwrap();
    let stored = history.messages().unwrap();
    history.replace(&stored[2..]).unwrap();
    assert_eq!(money(&spend(&store).0), money(&totals));
    assert_eq!(texts(&store, &session()), ["early.", "late?", "late."]);
}

#[test]
fn a_session_that_is_there_and_a_thread_without_older_transcripts_adopt_nothing() {
    let store = Store::in_memory().unwrap();
    fill(&store);
    assert!(adopt(&store).is_some());
    let records = store.stats().unwrap().records;
    assert_eq!(adopt(&store), None, "a second call");
    let later = session().next_generation();
    assert_eq!(store.adopt(&later, THREAD, seed()).unwrap(), None);
    // Other keys adopt the same again: that is for the host to decide.
    for (session, thread) in [
        (session(), "th-9"),
        (SessionRef::scoped("new", "writer"), THREAD),
        (SessionRef::root("new"), " "),
        (SessionRef::child_of(&session(), "new"), THREAD),
    ] {
        assert_eq!(store.adopt(&session, thread, seed()).unwrap(), None);
    }
    let nobody = TranscriptMeta::new("planner");
    let root = SessionRef::root("new");
    assert_eq!(store.adopt(&root, THREAD, nobody).unwrap(), None);
    assert_eq!(store.stats().unwrap().records, records);
    assert!(!store.locator().session_exists(&root).unwrap());
    // A session without an agent is that of the seed's.
    let adopted = store.adopt(&root, " th-7 ", seed()).unwrap().unwrap();
    assert_eq!(adopted.rows(), 5);
    assert_eq!(adopted.meta.thread_id.as_deref(), Some(THREAD));
}

#[test]
fn transcripts_of_sessions_are_not_adopted() {
    let store = Store::in_memory().unwrap();
    let locator = store.locator();
    let meta = old("planner", "2026-03-02T08:00:00Z");
    let named = TranscriptMeta {
        session_id: Some("x".to_owned()),
        ..meta.clone()
    };
    turn(&store, "1600_planner", &named, "named", "t");
    let other = SessionRef::scoped("other", "planner");
    let history = locator.open_session(&other, meta.clone()).unwrap();
    history.append(TranscriptMessage::user("x")).unwrap();
    turn(&store, "1700_planner", &meta, "old", "t");
    let reached = SessionRef::root("1800");
    turn(&store, &reached.session_id(), &meta, "reached", "t");
    let history = locator.open_session(&reached, meta).unwrap();
    history.append(TranscriptMessage::user("x")).unwrap();
    let adoption = adopt(&store).unwrap();
    assert_eq!(adoption.sources[0].stem, "1700_planner");
    assert_eq!(adoption.sources.len(), 1);
}

#[test]
fn of_racing_adopters_one_wins() {
    for _ in 0..20 {
        let store = Store::in_memory().unwrap();
        fill(&store);
        let start = Arc::new(Barrier::new(4));
        let adopters: Vec<_> = (0..4)
            .map(|_| {
                let (store, start) = (store.clone(), Arc::clone(&start));
                thread::spawn(move || {
                    start.wait();
                    adopt(&store)
                })
            })
            .collect();
        let answers = adopters.into_iter().map(|it| it.join().unwrap());
        assert_eq!(answers.flatten().count(), 1);
        assert_eq!(texts(&store, &session()).len(), 5);
    }
}

#[test]
fn a_first_turn_and_an_adoption_never_mix() {
    let mut won = [0, 0];
    for round in 0..60 {
        let store = Store::in_memory().unwrap();
        fill(&store);
        let start = Arc::new(Barrier::new(2));
        let host = {
            let (store, start) = (store.clone(), Arc::clone(&start));
            thread::spawn(move || {
                let history = store.locator().open_session(&session(), seed()).unwrap();
                let next = [TranscriptMessage::user("first")];
                let meta = seed();
                start.wait();
                // Reading the candidates takes the adoption longer than the turn, so sometimes it is given a start.
                if round % 2 == 1 {
                    while texts(&store, &session()).is_empty() {
                        thread::yield_now();
                    }
                }
                history.append_turn(TranscriptTurn::new(&[], &next, &meta))
            })
        };
        start.wait();
        let adopted = adopt(&store);
        let turn = host.join().unwrap();
        match (adopted, turn) {
            (Some(_), Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::Stale);
                assert_eq!(texts(&store, &session()).len(), 5);
                won[0] += 1;
            }
            (None, Ok(())) => {
                assert_eq!(texts(&store, &session()), ["first"]);
                won[1] += 1;
            }
            (adopted, turn) => panic!("both or neither won: {adopted:?}, {turn:?}"),
        }
    }
    assert!(won[0] >= 1, "{won:?}");
}

#[test]
fn a_row_that_a_source_is_given_meanwhile_is_adopted_or_came_later() {
    for _ in 0..20 {
        let store = Store::in_memory().unwrap();
        fill(&store);
        let start = Arc::new(Barrier::new(2));
        let host = {
            let (store, start) = (store.clone(), Arc::clone(&start));
            thread::spawn(move || {
                let history = store.locator().open_stem("1700_planner", seed()).unwrap();
                start.wait();
                // Whether the adoption was there after this row was.
                (0..20)
                    .map(|at| {
                        let row = TranscriptMessage::user(format!("row {at}"));
                        history.append(row).unwrap();
                        store.locator().session_exists(&session()).unwrap()
                    })
                    .collect::<Vec<_>>()
            })
        };
        start.wait();
        adopt(&store).unwrap();
        let there = host.join().unwrap();
        let before = there.iter().filter(|there| !**there).count();
        let adopted = texts(&store, &session());
        assert!(
            adopted.len() >= 5 + before,
            "{before} rows were there first"
        );
        for at in 0..before {
            assert!(adopted.contains(&format!("row {at}")));
        }
    }
}

#[test]
fn an_adoption_survives_as_a_whole() {
    let disk = SimDisk::new();
    let store = disk.open(Store::builder()).unwrap();
    fill(&store);
    // More than a segment of the journal holds.
    let big = old("planner", "2026-03-05T08:00:00Z");
    for at in 0..6 {
        let noise: String = (0..1_u32 << 18)
            .map(|it| char::from(b'a' + (it.wrapping_mul(2_654_435_761 + at) >> 27) as u8 % 26))
            .collect();
        turn(&store, "1800_planner", &big, &noise, "big");
    }
    let adoption = adopt(&store).unwrap();
    let (rows, spent) = (texts(&store, &session()), spend(&store));
    assert_eq!(rows.len() as u64, adoption.rows());
    let killed = SimDisk::with_image(disk.image());
    drop(store);
    for disk in [killed, disk] {
        let store = disk.open(Store::builder()).unwrap();
        assert_eq!(texts(&store, &session()), rows);
        assert_eq!(spend(&store), spent);
        assert_eq!(adopt(&store), None);
    }
}

#[test]
fn what_the_disk_refuses_leaves_nothing() {
    let mut struck = 0;
    for call in [DiskCall::Write, DiskCall::Sync] {
        for nth in 1..40 {
            let disk = SimDisk::new();
            let store = disk.open(Store::builder()).unwrap();
            fill(&store);
            disk.fail_once(call, nth);
            let answer = store.adopt(&session(), THREAD, seed());
            let failed = disk.failures() > 0;
            disk.heal();
            drop(store);
            let store = disk.open(Store::builder()).unwrap();
            let rows = texts(&store, &session()).len();
            match answer {
                Ok(adopted) => assert_eq!((adopted.is_some(), rows), (true, 5)),
                Err(error) if error.kind() == ErrorKind::Indeterminate => {
                    assert!(rows == 0 || rows == 5);
                }
                Err(_) => assert_eq!(rows, 0),
            }
            let again = adopt(&store);
            assert_eq!(again.is_some(), rows == 0);
            assert_eq!(texts(&store, &session()).len(), 5);
            struck += usize::from(failed);
            if !failed {
                break;
            }
        }
    }
    assert!(struck > 1, "the disk failed under {struck} of them");
}

#[test]
fn a_source_that_does_not_read_is_an_error_and_nothing_is_adopted() {
    let disk = SimDisk::new();
    let store = disk.open(Store::builder()).unwrap();
    fill(&store);
    let needle = "needle-0123456789-abcdef";
    turn(
        &store,
        "1750_planner",
        &old("planner", "2026-03-03T08:00:00Z"),
        needle,
        "t",
    );
    drop(store);
    let mut image = disk.image();
    let found: Vec<usize> = image
        .database()
        .windows(needle.len())
        .enumerate()
        .filter(|(_, bytes)| *bytes == needle.as_bytes())
        .map(|(at, _)| at)
        .collect();
    assert!(!found.is_empty());
    for at in found {
        image.database_mut()[at] ^= 1;
    }
    let store = SimDisk::with_image(image).open(Store::builder()).unwrap();
    let error = store.adopt(&session(), THREAD, seed()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupted);
    assert!(!error.to_string().contains("needle"));
    assert!(!store.locator().session_exists(&session()).unwrap());
    let records = store.records_of_stem(&session().session_id()).unwrap();
    assert_eq!(records.count(), 0);
}

#[test]
fn an_adopted_row_holds_its_idempotency_key() {
    let store = Store::in_memory().unwrap();
    let origin = json!({ "background_origin": { "idempotency_key": "run-9", "provenance": null } });
    let mut row = TranscriptMessage::assistant("done");
    row.extra_metadata = Some(origin);
    let meta = old("planner", "2026-03-02T08:00:00Z");
    let history = store.locator().open_stem("1600_planner", meta).unwrap();
    history.append(row).unwrap();
    adopt(&store).unwrap();
    let outcome = store.locator().append_background(
        &session(),
        TranscriptMessage::assistant("done again"),
        &BackgroundAppend::new("run-9", json!(null)),
    );
    assert_eq!(
        outcome.unwrap(),
        BackgroundAppendOutcome::Duplicate { generation: 0 }
    );
}

#[test]
fn an_adopted_session_comes_back_from_the_native_format() {
    let store = Store::in_memory().unwrap();
    fill(&store);
    adopt(&store).unwrap();
    let export = |store: &Store| {
        let mut out = Vec::new();
        store
            .export_native(transcript_redb::ExportScope::All, &mut out)
            .unwrap();
        out
    };
    let image = export(&store);
    let again = Store::in_memory().unwrap();
    let native = interchange::codec("native").unwrap();
    again.import_from("x.jsonl", &image[..], native).unwrap();
    assert_eq!(export(&again), image);
    assert_eq!(spend(&again), spend(&store));
    assert_eq!(texts(&again, &session()), texts(&store, &session()));
    assert_eq!(adopt(&again), None);
}
