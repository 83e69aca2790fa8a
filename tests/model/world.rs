//! The transcripts, threads and agents that sequences are about: few, so that they meet often.

use transcript_redb::SessionRef;

/// The sessions and raw stems. They are the same for every seed.
#[derive(Debug)]
pub struct World {
    /// Generation 0 of each.
    pub sessions: Vec<SessionRef>,
    pub stems: Vec<String>,
}

pub const THREADS: [&str; 6] = ["t1", "t2", "t3", " t1 ", "  ", "nowhere"];
pub const AGENTS: [&str; 5] = ["orch", "worker", "ag", "", "nobody"];

impl World {
    pub fn new() -> Self {
        let child = |parent: &SessionRef, key: &str| SessionRef::child_of(parent, key);
        let plain = SessionRef::root("plain");
        let scoped = SessionRef::scoped("scoped", "orch");
        let long = SessionRef::root("long ".repeat(40));
        let worker = child(&scoped, "worker");
        let deep = child(&worker, "deep");
        let deeper = child(&deep, "deeper");
        let deepest = child(&deeper, "deepest");
        let unwritten = SessionRef::root("unwritten");
        let orphan = child(&unwritten, "orphan");
        let sessions = vec![
            plain.clone(),
            scoped.clone(),
            long.clone(),
            child(&plain, "c"),
            worker.clone(),
            deep.clone(),
            deeper.clone(),
            deepest,
            child(&long, &"key ".repeat(60)),
            orphan.clone(),
            child(&orphan, "below"),
            // Their parents are later generations.
            child(&plain.next_generation(), "late"),
            child(&deep.next_generation().next_generation(), "later"),
            SessionRef::scoped("scoped", "other"),
        ];
        let mut stems = vec![
            "raw".to_owned(),
            "raw.g1".to_owned(),
            "raw__b".to_owned(),
            "raw__b__c".to_owned(),
            "raw__b.g1__d".to_owned(),
            "gone__k".to_owned(),
            "__root".to_owned(),
            // Names that their sessions also have references for.
            plain.session_id(),
            plain.next_generation().session_id(),
            worker.session_id(),
            child(&worker, "deep").session_id(),
            child(&deeper, "aside").session_id(),
            unwritten.session_id(),
            // A digest of a stem that nobody ever mentions.
            child(&child(&SessionRef::root("z".repeat(90)), "y"), "x").session_id(),
        ];
        // The digest by which a child of `deep` names it, as a name of its own.
        let digest = deeper.session_id();
        let digest = digest.split_once("__").expect("it has a parent").0;
        stems.push(digest.to_owned());
        Self { sessions, stems }
    }
}
