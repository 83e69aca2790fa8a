//! What a new generation keeps of the one before (contract sections 1.16, 3.1 and 4).

use serde_json::json;
use transcript_redb::{ErrorKind, TruncateCut};

use crate::dsl::{Case, a, case, charged, half, kept, remembered, s, u};

pub fn cases() -> Vec<Case> {
    let mut cases = opened();
    cases.extend(truncated());
    cases
}

fn opened() -> Vec<Case> {
    vec![
        case("a successor refers to the rows that it keeps, as plain messages")
            .turn([s("rules"), u("q"), a("answer")])
            .begin()
            .turn([kept(0), kept(2)])
            .shows(["#1 s rules", "#2 u q", "#3 a answer"])
            .shows(["#1", "#3"])
            .context("#1 #3"),
        case("new rows of a successor stand between the kept ones")
            .turn([s("rules"), u("q"), a("answer")])
            .begin()
            .turn([kept(0), a("summary"), kept(2)])
            .request("r")
            .known(json!({"trigger": "auto"}))
            .shows(["#1 s rules", "#2 u q", "#3 a answer"])
            .shows(["#1", "#4 a summary | req=r", "#3"])
            .context("#1 #4 #3"),
        case("a copy that was not read is a new row of the successor")
            .turn([u("q")])
            .begin()
            .turn([u("q")])
            .shows(["#1 u q"])
            .shows(["#2 u q"])
            .context("#2"),
        case("an edited row is a revision across the seam")
            .turn([u("q"), a("answer")])
            .usage(charged(10, 5, 0.5))
            .begin()
            .turn([kept(1).breaks(&[1])])
            .shows(["#1 u q", "#2 a answer | use=10/5$0.5C"])
            .shows(["#3 a answer | revises=#2 use=10/5$0.5C breaks=[1]"])
            .context("#3")
            .spend("1 turn 10/5 $0.5C last 10/5"),
        case("a kept usage counts once in the thread, and in the context of its successor")
            .turn([u("q"), a("one")])
            .usage(charged(10, 5, 0.5))
            .begin()
            .turn([kept(1), a("two")])
            .usage(charged(1, 1, 0.25))
            .shows(["#1 u q", "#2 a one | use=10/5$0.5C"])
            .shows(["#2", "#3 a two | use=1/1$0.25C"])
            .context("#2 #3")
            .spend("2 turns 11/6 $0.75C last 1/1"),
        case(
            "the usage of a first write without a new assistant row stands alone in the successor",
        )
        .turn([u("q"), a("one")])
        .begin()
        .turn([kept(1)])
        .usage(charged(1, 1, 0.25))
        .shows(["#1 u q", "#2 a one"])
        .shows(["#2", "+ #3 use=1/1$0.25C"])
        .context("#2")
        .live("nothing")
        .thread("1 turn 1/1 $0.25C last 1/1"),
        case("replace as the first write of a successor is plain messages by reference")
            .turn([u("a"), u("b")])
            .begin()
            .replace([kept(1), u("c").req("r")])
            .shows(["#1 u a", "#2 u b"])
            .shows(["#2", "#3 u c | req=r"])
            .context("#2 #3"),
        case("append can be the first write of a successor")
            .turn([u("a")])
            .begin()
            .append(u("b"))
            .shows(["#1 u a"])
            .shows(["#2 u b | ts=now"])
            .context("#2"),
        case("a first write without rows opens a successor with an empty context")
            .turn([u("a")])
            .begin()
            .turn([])
            .shows(["#1 u a"])
            .shows([])
            .context(""),
        case("a successor that is only reserved does not exist")
            .turn([u("a")])
            .begin()
            .shows(["#1 u a"])
            .context("#1"),
        case("clearing a reserved successor leaves nothing of it")
            .turn([u("a")])
            .begin()
            .clear()
            .to(0)
            .append(u("b"))
            .shows(["#1 u a", "#2 u b | ts=now"])
            .context("#1 #2"),
        case("a cleared handle that writes keeps rows of the predecessor as it is by then")
            .turn([u("a")])
            .begin()
            .clear()
            .turn([kept(0)])
            .shows(["#1 u a"])
            .shows(["#1"])
            .context("#1"),
        case("a successor starts with no tools record")
            .turn([u("a")])
            .with_tools(json!(["t"]))
            .begin()
            .turn([kept(0)])
            .shows(["#1 u a"])
            .shows(["#1"])
            .context("#1"),
        case("a successor records tools of its own")
            .turn([u("a")])
            .with_tools(json!(["t"]))
            .begin()
            .turn([kept(0)])
            .with_tools(json!(["t2"]))
            .shows(["#1 u a"])
            .shows(["#1"])
            .context("#1")
            .tools(json!(["t2"])),
        case("a row is the same through any number of generations")
            .turn([u("a"), u("b")])
            .begin()
            .turn([kept(1)])
            .begin()
            .turn([kept(0), u("c")])
            .begin()
            .turn([kept(1), kept(0)])
            .shows(["#1 u a", "#2 u b"])
            .shows(["#2"])
            .shows(["#2", "#3 u c"])
            .shows(["#3", "#2"])
            .context("#3 #2"),
        case("a row of an older generation that the predecessor did not keep is new")
            .turn([u("a"), u("b")])
            .remember()
            .begin()
            .turn([kept(1)])
            .begin()
            .turn([remembered(0), kept(0)])
            .shows(["#1 u a", "#2 u b"])
            .shows(["#2"])
            .shows(["#3 u a", "#2"])
            .context("#3 #2"),
        case("equal rows of the predecessor are taken from the left")
            .turn([u("x"), u("x"), u("y")])
            .begin()
            .turn([kept(1), kept(2), kept(0)])
            .shows(["#1 u x", "#2 u x", "#3 u y"])
            .shows(["#1", "#3", "#2"])
            .context("#1 #3 #2"),
        case("rows that a compaction of the predecessor stored are kept by reference")
            .turn([u("a")])
            .turn([a("summary"), u("b")])
            .begin()
            .turn([kept(0)])
            .shows(["#1 u a", "= compaction", "| #2 a summary", "| #3 u b"])
            .shows(["#2"])
            .context("#2"),
        case("a compaction in the successor refers to the rows that it kept")
            .turn([u("a"), u("b")])
            .begin()
            .turn([kept(0), kept(1)])
            .turn([a("summary"), kept(1)])
            .shows(["#1 u a", "#2 u b"])
            .shows(["#1", "#2", "= compaction", "| #3 a summary", "| #2"])
            .context("#3 #2"),
        case("a partial of the predecessor is not kept")
            .turn([u("a")])
            .partial(half("ha"))
            .begin()
            .turn([kept(0)])
            .shows(["#1 u a", "#2 a ha | interrupted=yes ts=now"])
            .shows(["#1"])
            .context("#1"),
        case("the generation after the head can be opened and written by its ref")
            .turn([u("a"), u("b")])
            .open_next()
            .turn([kept(1), u("c")])
            .shows(["#1 u a", "#2 u b"])
            .shows(["#2", "#3 u c"])
            .context("#2 #3"),
        case("a sealed generation is sealed before it is stale")
            .turn([u("a")])
            .begin()
            .turn([kept(0)])
            .to(0)
            .turn([u("b")])
            .on([u("not stored")])
            .refused(ErrorKind::Sealed)
            .shows(["#1 u a"])
            .shows(["#1"])
            .context("#1"),
        case("a sealed generation takes no partial of a turn")
            .turn([u("a")])
            .begin()
            .turn([kept(0)])
            .to(0)
            .turn([kept(0)])
            .partial(half("ha"))
            .refused(ErrorKind::Sealed)
            .shows(["#1 u a"])
            .shows(["#1"])
            .context("#1"),
        case("a partial of the thread goes to the newest generation")
            .turn([u("a")])
            .begin()
            .turn([kept(0)])
            .interrupted(half("ha"), Some("r"))
            .shows(["#1 u a"])
            .shows(["#1", "#2 a ha | interrupted=yes req=r ts=now"])
            .context("#1"),
        case("a stale baseline opens no successor")
            .turn([u("a")])
            .append(u("b"))
            .begin_on([kept(0)])
            .refused(ErrorKind::Stale)
            .to(0)
            .append(u("c"))
            .shows(["#1 u a", "#2 u b | ts=now", "#3 u c | ts=now"])
            .context("#1 #2 #3"),
        case("the stored context is a baseline for a successor")
            .turn([u("a"), u("b")])
            .begin_on([u("a"), kept(1)])
            .turn([kept(1)])
            .shows(["#1 u a", "#2 u b"])
            .shows(["#2"])
            .context("#2"),
        case("an unwritten session has no successor")
            .begin()
            .refused(ErrorKind::NotWritten)
            .context(""),
    ]
}

fn truncated() -> Vec<Case> {
    let talk = |name| {
        case(name)
            .turn([
                s("rules"),
                u("q1").id("m1"),
                a("one"),
                u("q2").id("m2"),
                a("two"),
            ])
            .shows([
                "#1 s rules",
                "#2 u q1 | id=m1",
                "#3 a one",
                "#4 u q2 | id=m2",
                "#5 a two",
            ])
    };
    vec![
        talk("BeforeIndex keeps the rows before the index, by reference")
            .truncate(TruncateCut::BeforeIndex(3))
            .shows(["#1", "#2", "#3"])
            .context("#1 #2 #3"),
        talk("BeforeIndex(0) keeps nothing and opens a successor all the same")
            .truncate(TruncateCut::BeforeIndex(0))
            .shows([])
            .context(""),
        talk("BeforeIndex beyond the end keeps everything")
            .truncate(TruncateCut::BeforeIndex(6))
            .shows(["#1", "#2", "#3", "#4", "#5"])
            .context("#1 #2 #3 #4 #5"),
        talk("BeforeMessageId keeps the rows before the row of that id")
            .truncate(TruncateCut::BeforeMessageId("m2".into()))
            .shows(["#1", "#2", "#3"])
            .context("#1 #2 #3"),
        case("BeforeMessageId cuts before the first of several rows of one id")
            .turn([u("a"), u("b").id("m"), u("c"), u("d").id("m")])
            .truncate(TruncateCut::BeforeMessageId("m".into()))
            .shows(["#1 u a", "#2 u b | id=m", "#3 u c", "#4 u d | id=m"])
            .shows(["#1"])
            .context("#1"),
        case("BeforeMessageId does not find a row that was compacted away")
            .turn([u("a").id("m"), u("b")])
            .turn([kept(1)])
            .truncate(TruncateCut::BeforeMessageId("m".into()))
            .refused(ErrorKind::UnknownMessageId)
            .shows(["#1 u a | id=m", "#2 u b", "= compaction", "| #2"])
            .context("#2"),
        talk("BeforeMessageId of an unknown id is refused")
            .truncate(TruncateCut::BeforeMessageId("m3".into()))
            .refused(ErrorKind::UnknownMessageId)
            .context("#1 #2 #3 #4 #5"),
        talk("LastAssistantTurn keeps up to and including the last user row")
            .truncate(TruncateCut::LastAssistantTurn)
            .shows(["#1", "#2", "#3", "#4"])
            .context("#1 #2 #3 #4"),
        case("LastAssistantTurn behind which nothing stands keeps everything")
            .turn([u("a"), u("b")])
            .truncate(TruncateCut::LastAssistantTurn)
            .shows(["#1 u a", "#2 u b"])
            .shows(["#1", "#2"])
            .context("#1 #2"),
        case("LastAssistantTurn without a user row keeps nothing")
            .turn([s("rules"), a("hello")])
            .truncate(TruncateCut::LastAssistantTurn)
            .shows(["#1 s rules", "#2 a hello"])
            .shows([])
            .context(""),
        case("a truncation of an unwritten session is refused")
            .truncate(TruncateCut::BeforeIndex(0))
            .refused(ErrorKind::NotWritten)
            .context(""),
        case("a truncation drops the tools and keeps the spend of the thread")
            .turn([u("q"), a("one")])
            .usage(charged(10, 5, 0.5))
            .with_tools(json!(["t"]))
            .truncate(TruncateCut::BeforeIndex(1))
            .shows(["#1 u q", "#2 a one | use=10/5$0.5C"])
            .shows(["#1"])
            .context("#1")
            .live("nothing")
            .thread("1 turn 10/5 $0.5C last 10/5"),
        case("a truncated session goes on, and can be truncated again")
            .turn([u("a"), u("b"), u("c")])
            .truncate(TruncateCut::BeforeIndex(2))
            .append(u("d"))
            .truncate(TruncateCut::BeforeIndex(1))
            .shows(["#1 u a", "#2 u b", "#3 u c"])
            .shows(["#1", "#2", "#4 u d | ts=now"])
            .shows(["#1"])
            .context("#1"),
    ]
}
