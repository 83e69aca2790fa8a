//! Everything that a store shows, to the letter, as text: two stores with the same text read the same.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use transcript_redb::{
    ExportScope, ListOrder, Result, SessionQuery, SpendGroup, SpendQuery, Store, TranscriptLocator,
    TranscriptMeta,
};

/// All that `store` shows.
pub fn whole(store: &Store) -> Result<String> {
    let mut out = String::new();
    let mut threads = BTreeSet::new();
    for order in [ListOrder::Created, ListOrder::Updated] {
        for children in [false, true] {
            for listed in store.sessions_matching(&SessionQuery {
                children,
                order,
                ..SessionQuery::default()
            })? {
                writeln!(out, "{order:?} {listed:?}").expect("a text");
                threads.extend(listed.thread_id);
            }
        }
    }
    for listed in store.sessions_matching(&SessionQuery {
        children: true,
        ..SessionQuery::default()
    })? {
        let base = match listed.generation {
            0 => listed.stem.as_str(),
            _ => listed.stem.rsplit_once(".g").expect("a generation").0,
        };
        show_transcript(store, base, &mut out)?;
        for generation in 1..=listed.generation {
            show_transcript(store, &format!("{base}.g{generation}"), &mut out)?;
        }
        if let Some(session) = listed.session {
            let sources = store.sources_of(&session)?;
            let told = store.attributes(&session)?;
            writeln!(out, "{told:?}").expect("a text");
            let spent = store.spend(SpendQuery {
                session: Some(session.clone()),
                ..SpendQuery::default()
            })?;
            writeln!(out, "{session:?} {sources:?} {spent:?}").expect("a text");
        }
    }
    let locator = store.locator();
    for thread in threads {
        let root = locator.root_for_thread(&thread)?;
        let root = root.map(|root| root.stem().to_owned());
        let listed = locator.thread_transcripts(&thread, None)?;
        let spent = locator.thread_spend(&thread)?;
        writeln!(out, "thread {thread}: {root:?} {listed:?} {spent:?}").expect("a text");
    }
    writeln!(out, "{:?}", store.threads()?).expect("a text");
    let groups = [
        vec![],
        vec![SpendGroup::Thread, SpendGroup::Session, SpendGroup::Agent],
        vec![SpendGroup::Provider, SpendGroup::Model, SpendGroup::Source],
        vec![
            SpendGroup::Hour,
            SpendGroup::Thread,
            SpendGroup::Session,
            SpendGroup::Agent,
        ],
    ];
    for group_by in groups {
        for row in store.spend(SpendQuery {
            group_by,
            ..SpendQuery::default()
        })? {
            writeln!(out, "spent {row:?}").expect("a text");
        }
    }
    for source in store.sources()? {
        let mut bytes = Vec::new();
        store.export_original(source.id, &mut bytes)?;
        let mut hash = DefaultHasher::new();
        bytes.hash(&mut hash);
        writeln!(out, "{source:?} {} {}", bytes.len(), hash.finish()).expect("a text");
    }
    writeln!(out, "{} records", store.stats()?.records).expect("a text");
    Ok(out)
}

fn show_transcript(store: &Store, stem: &str, out: &mut String) -> Result<()> {
    let history = store.locator().open_stem(stem, TranscriptMeta::new(""))?;
    writeln!(out, "{stem}: {:?}", history.read_session()?).expect("a text");
    writeln!(out, "{:?}", history.read_display()?).expect("a text");
    for record in store.records_of_stem(stem)? {
        let record = record?;
        assert_eq!(store.record(record.uuid)?.as_ref(), Some(&record));
        writeln!(out, "{record:?}").expect("a text");
    }
    Ok(())
}

/// The whole store in the native format.
pub fn exported(store: &Store, scope: ExportScope<'_>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    store.export_native(scope, &mut out)?;
    Ok(out)
}
