//! Background appends: outcomes, keys and what is stored (contract section 6).

use serde_json::json;
use transcript_redb::BackgroundAppendOutcome::{Appended, Duplicate, NoSession, StaleGeneration};
use transcript_redb::ErrorKind;

use crate::dsl::{Case, a, calls, case, charged, kept, other, s, t, u, used};

pub fn cases() -> Vec<Case> {
    let mut cases = appended();
    cases.extend(keys());
    cases.extend(refusals());
    cases
}

fn appended() -> Vec<Case> {
    vec![
        case("a background row is appended with its origin and the time of its write")
            .turn([u("q")])
            .background("job", a("done"))
            .from(json!({"id": 7}))
            .shows(["#1 u q", r#"#2 a done | ts=now from=job:{"id":7}"#])
            .context("#1 #2"),
        case("nothing is created for an unwritten session")
            .background("job", a("done"))
            .answers(NoSession)
            .context(""),
        case("an unwritten session is no session before it is stale")
            .background("job", a("done"))
            .expecting(3)
            .answers(NoSession)
            .context(""),
        case("the head that was expected takes the row")
            .turn([u("q")])
            .background("job", a("done"))
            .expecting(0)
            .shows(["#1 u q", "#2 a done | ts=now from=job:null"])
            .context("#1 #2"),
        case("another head than expected is stale")
            .turn([u("q")])
            .background("job", a("done"))
            .expecting(1)
            .answers(StaleGeneration { expected: 1, head: 0 })
            .shows(["#1 u q"])
            .context("#1"),
        case("an older head than the newest is stale, the newest takes the row")
            .turn([u("q")])
            .begin()
            .turn([kept(0)])
            .background("job", a("done"))
            .expecting(0)
            .answers(StaleGeneration { expected: 0, head: 1 })
            .background("job", a("done"))
            .expecting(1)
            .answers(Appended { generation: 1 })
            .shows(["#1 u q"])
            .shows(["#1", "#2 a done | ts=now from=job:null"])
            .context("#1 #2"),
        case("a stale generation is answered before a duplicate")
            .turn([u("q")])
            .background("job", a("done"))
            .background("job", a("done"))
            .expecting(1)
            .answers(StaleGeneration { expected: 1, head: 0 })
            .shows(["#1 u q", "#2 a done | ts=now from=job:null"])
            .context("#1 #2"),
        case("the row has no request id unless it claims one")
            .turn([u("q")])
            .background("job 1", a("one").req("r"))
            .background("job 2", a("two").claims("r"))
            .shows([
                "#1 u q",
                "#2 a one | ts=now from=job 1:null",
                "#3 a two | req=r ts=now from=job 2:null",
            ])
            .context("#1 #2 #3"),
        case("other metadata of the row are kept, an older origin is not")
            .turn([u("q")])
            .background(
                "new",
                a("done").meta(json!({"x": 1, "background_origin": {"idempotency_key": "old"}})),
            )
            .from(json!(7))
            .background("old", a("again"))
            .shows([
                "#1 u q",
                r#"#2 a done | ts=now from=new:7 meta={"background_origin":{"idempotency_key":"new","provenance":7},"x":1}"#,
                "#3 a again | ts=now from=old:null",
            ])
            .context("#1 #2 #3"),
        case("the usage of a background row counts")
            .turn([u("q")])
            .background("job", a("done").used(charged(10, 5, 0.5)))
            .background("job", a("done").used(charged(10, 5, 0.5)))
            .answers(Duplicate { generation: 0 })
            .shows(["#1 u q", "#2 a done | use=10/5$0.5C ts=now from=job:null"])
            .context("#1 #2")
            .spend("1 turn 10/5 $0.5C last 10/5"),
        case("a usage that has a time gives it to its background row")
            .turn([u("q")])
            .background("job", a("done").used(charged(10, 5, 0.5).at("early")))
            .shows([
                "#1 u q",
                "#2 a done | use=10/5$0.5C,at:early ts=early from=job:null",
            ])
            .context("#1 #2")
            .spend("1 turn 10/5 $0.5C last 10/5"),
        case("a background row makes the baseline of a turn in flight stale")
            .turn([u("q")])
            .background("job", a("done"))
            .turn([u("q"), a("answer")])
            .on([u("q")])
            .refused(ErrorKind::Stale)
            .shows(["#1 u q", "#2 a done | ts=now from=job:null"])
            .context("#1 #2"),
        case("tools stay in force")
            .turn([u("q")])
            .with_tools(json!(["t"]))
            .background("job", a("done"))
            .shows(["#1 u q", "#2 a done | ts=now from=job:null"])
            .context("#1 #2")
            .tools(json!(["t"])),
        case("an empty text is a row")
            .turn([u("q")])
            .background("job", a(""))
            .shows(["#1 u q", "#2 a  | ts=now from=job:null"])
            .context("#1 #2"),
    ]
}

fn keys() -> Vec<Case> {
    vec![
        case("a used key is a duplicate, whatever the row and the provenance are")
            .turn([u("q")])
            .background("job", a("done"))
            .background("job", a("another text"))
            .from(json!("another provenance"))
            .answers(Duplicate { generation: 0 })
            .shows(["#1 u q", "#2 a done | ts=now from=job:null"])
            .context("#1 #2"),
        case("an equal row under another key is another row")
            .turn([u("q")])
            .background("job 1", a("done"))
            .background("job 2", a("done"))
            .shows([
                "#1 u q",
                "#2 a done | ts=now from=job 1:null",
                "#3 a done | ts=now from=job 2:null",
            ])
            .context("#1 #2 #3"),
        case("a key is used untrimmed")
            .turn([u("q")])
            .background("job", a("one"))
            .background(" job", a("two"))
            .shows([
                "#1 u q",
                "#2 a one | ts=now from=job:null",
                "#3 a two | ts=now from= job:null",
            ])
            .context("#1 #2 #3"),
        case("a compaction that drops the row frees its key")
            .turn([u("q")])
            .background("job", a("done"))
            .turn([a("summary")])
            .background("job", a("again"))
            .shows([
                "#1 u q",
                "#2 a done | ts=now from=job:null",
                "= compaction",
                "| #3 a summary",
                "#4 a again | ts=now from=job:null",
            ])
            .context("#3 #4"),
        case("a compaction that retains the row keeps its key")
            .turn([u("q")])
            .background("job", a("done"))
            .turn([a("summary"), kept(1)])
            .background("job", a("again"))
            .answers(Duplicate { generation: 0 })
            .shows([
                "#1 u q",
                "#2 a done | ts=now from=job:null",
                "= compaction",
                "| #3 a summary",
                "| #2",
            ])
            .context("#3 #2"),
        case("a replacement that drops the row frees its key")
            .turn([u("q")])
            .background("job", a("done"))
            .replace([kept(0)])
            .background("job", a("again"))
            .shows([
                "#1 u q",
                "#2 a done | ts=now from=job:null",
                "= compaction",
                "| #1",
                "#3 a again | ts=now from=job:null",
            ])
            .context("#1 #3"),
        case("a clear frees every key")
            .turn([u("q")])
            .background("job", a("done"))
            .clear()
            .background("job", a("again"))
            .shows([
                "#1 u q",
                "#2 a done | ts=now from=job:null",
                "= compaction",
                "#3 a again | ts=now from=job:null",
            ])
            .context("#3"),
        case("a successor that does not keep the row has its key free")
            .turn([u("q")])
            .background("job", a("done"))
            .begin()
            .turn([kept(0)])
            .background("job", a("again"))
            .answers(Appended { generation: 1 })
            .shows(["#1 u q", "#2 a done | ts=now from=job:null"])
            .shows(["#1", "#3 a again | ts=now from=job:null"])
            .context("#1 #3"),
        case("a successor that keeps the row holds its key")
            .turn([u("q")])
            .background("job", a("done"))
            .begin()
            .turn([kept(1)])
            .background("job", a("again"))
            .answers(Duplicate { generation: 1 })
            .shows(["#1 u q", "#2 a done | ts=now from=job:null"])
            .shows(["#2"])
            .context("#2"),
        case("a row that came by a turn or an append holds the key of its origin")
            .turn([u("q").meta(json!({"background_origin": {"idempotency_key": "one"}}))])
            .append(s("x").meta(json!({"background_origin": {"idempotency_key": "two"}})))
            .background("one", a("done"))
            .answers(Duplicate { generation: 0 })
            .background("two", a("done"))
            .answers(Duplicate { generation: 0 })
            .shows(["#1 u q | from=one:null", "#2 s x | ts=now from=two:null"])
            .context("#1 #2"),
        case("a malformed origin holds no key")
            .turn([u("q").meta(json!({"background_origin": {"idempotency_key": ["job"]}}))])
            .background("job", a("done"))
            .shows([
                r#"#1 u q | meta={"background_origin":{"idempotency_key":["job"]}}"#,
                "#2 a done | ts=now from=job:null",
            ])
            .context("#1 #2"),
        case("a revision that keeps the origin holds its key")
            .turn([u("q")])
            .background("job", a("done"))
            .turn([kept(1).breaks(&[1])])
            .background("job", a("again"))
            .answers(Duplicate { generation: 0 })
            .shows([
                "#1 u q",
                "#2 a done | ts=now from=job:null",
                "= compaction",
                "| #3 a done | revises=#2 from=job:null breaks=[1]",
            ])
            .context("#3"),
        case("a revision that drops the origin frees its key")
            .turn([u("q")])
            .background("job", a("done"))
            .turn([kept(1).meta(json!({}))])
            .background("job", a("again"))
            .shows([
                "#1 u q",
                "#2 a done | ts=now from=job:null",
                "= compaction",
                "| #3 a done | revises=#2 meta={}",
                "#4 a again | ts=now from=job:null",
            ])
            .context("#3 #4"),
        case("an interrupted row is in no live context, so it holds no key")
            .turn([u("q")])
            .append(
                a("half")
                    .meta(json!({"background_origin": {"idempotency_key": "job"}}))
                    .cut(),
            )
            .background("job", a("done"))
            .shows([
                "#1 u q",
                "#2 a half | interrupted=yes ts=now from=job:null",
                "#3 a done | ts=now from=job:null",
            ])
            .context("#1 #3"),
        case("a key that two rows hold is free when both are gone")
            .turn([u("q")])
            .background("job", a("done"))
            .append(a("copy").meta(json!({"background_origin": {"idempotency_key": "job"}})))
            .turn([kept(0), kept(2)])
            .background("job", a("again"))
            .answers(Duplicate { generation: 0 })
            .turn([kept(0)])
            .background("job", a("again"))
            .shows([
                "#1 u q",
                "#2 a done | ts=now from=job:null",
                "#3 a copy | ts=now from=job:null",
                "= compaction",
                "| #1",
                "| #3",
                "= compaction",
                "| #1",
                "#4 a again | ts=now from=job:null",
            ])
            .context("#1 #4"),
    ]
}

fn refusals() -> Vec<Case> {
    let refused = |name, key, row| {
        case(name)
            .turn([u("q")])
            .background(key, row)
            .refused(ErrorKind::InvalidMessage)
            .shows(["#1 u q"])
            .context("#1")
    };
    let old = r#"{"content":"x","tool_calls":[{"id":"c","name":"f","arguments":"{}"}]}"#;
    vec![
        refused("an empty key is refused", "", a("done")),
        refused("a blank key is refused", " \t\n", a("done")),
        refused("a user row is refused", "job", u("done")),
        refused("a system row is refused", "job", s("done")),
        refused("a tool result is refused", "job", t("done")),
        refused(
            "a row of the host's own role is refused",
            "job",
            other("narrator", "done"),
        ),
        refused("a row with calls is refused", "job", calls("done")),
        refused(
            "a row whose text is packed calls is refused",
            "job",
            other("assistant", old),
        ),
        refused("an interrupted row is refused", "job", a("done").cut()),
        refused("a failed row is refused", "job", a("done").fails("late")),
        refused(
            "a row whose usage has calls is refused",
            "job",
            a("done").used(used(1, 1).calling()),
        ),
        refused(
            "metadata that is a number is refused",
            "job",
            a("done").meta(json!(1)),
        ),
        refused(
            "metadata that is a list is refused",
            "job",
            a("done").meta(json!([{}])),
        ),
        case("a bad row is refused before the session is looked at")
            .background("job", u("done"))
            .refused(ErrorKind::InvalidMessage)
            .context(""),
        case("a reserved successor makes the head refuse the row")
            .turn([u("q")])
            .begin()
            .background("job", a("done"))
            .refused(ErrorKind::Sealed)
            .shows(["#1 u q"])
            .context("#1"),
    ]
}
