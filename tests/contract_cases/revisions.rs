//! Which row of a compaction is which stored row (contract section 4, retained rows).

use serde_json::json;

use crate::dsl::{Case, a, case, charged, kept, t, u};

pub fn cases() -> Vec<Case> {
    let mut cases = references();
    cases.extend(revisions());
    cases.extend(order());
    cases
}

/// Rows that are exactly a stored one.
fn references() -> Vec<Case> {
    vec![
        case("a row that was not read is new, whatever it equals")
            .turn([u("a"), a("b"), u("c")])
            .turn([u("a"), a("summary")])
            .shows([
                "#1 u a",
                "#2 a b",
                "#3 u c",
                "= compaction",
                "| #4 u a",
                "| #5 a summary",
            ])
            .context("#4 #5"),
        case("a row that was read is the stored row")
            .turn([u("a"), a("b"), u("c")])
            .turn([kept(0), a("summary")])
            .shows([
                "#1 u a",
                "#2 a b",
                "#3 u c",
                "= compaction",
                "| #1",
                "| #4 a summary",
            ])
            .context("#1 #4"),
        case("a row that no longer claims its request id is new")
            .turn([u("a"), a("b")])
            .turn([kept(0).fresh()])
            .shows(["#1 u a", "#2 a b", "= compaction", "| #3 u a"])
            .context("#3"),
        case("a row of the host's own that claims its request id is the stored row that it equals")
            .turn([u("a"), a("b")])
            .request("r")
            .turn([a("b").claims("r")])
            .shows(["#1 u a | req=r", "#2 a b | req=r", "= compaction", "| #2"])
            .context("#2"),
        case("equal rows are taken from the left, none twice")
            .turn([u("x"), u("x"), u("y")])
            .turn([kept(2), kept(1), kept(0)])
            .shows([
                "#1 u x",
                "#2 u x",
                "#3 u y",
                "= compaction",
                "| #3",
                "| #1",
                "| #2",
            ])
            .context("#3 #1 #2"),
        case("one copy more than was stored is new")
            .turn([u("x"), u("x"), u("y")])
            .turn([kept(2), kept(0), kept(0), kept(0)])
            .shows([
                "#1 u x",
                "#2 u x",
                "#3 u y",
                "= compaction",
                "| #3",
                "| #1",
                "| #2",
                "| #4 u x",
            ])
            .context("#3 #1 #2 #4"),
        case("one copy fewer leaves the first")
            .turn([u("x"), u("x"), u("x"), u("y")])
            .turn([kept(2), kept(1)])
            .shows([
                "#1 u x",
                "#2 u x",
                "#3 u x",
                "#4 u y",
                "= compaction",
                "| #1",
                "| #2",
            ])
            .context("#1 #2"),
        case("equal texts with other metadata are told apart")
            .turn([u("x").meta(json!(1)), u("x").meta(json!(2)), u("y")])
            .turn([kept(1), kept(0)])
            .shows([
                "#1 u x | meta=1",
                "#2 u x | meta=2",
                "#3 u y",
                "= compaction",
                "| #2",
                "| #1",
            ])
            .context("#2 #1"),
        case("equal texts of other requests are told apart")
            .turn([u("x").claims("r1"), u("x").claims("r2"), u("y")])
            .turn([kept(1)])
            .shows([
                "#1 u x | req=r1",
                "#2 u x | req=r2",
                "#3 u y",
                "= compaction",
                "| #2",
            ])
            .context("#2"),
        case("equal texts with other breakpoints are told apart")
            .turn([u("x").breaks(&[1]), u("x"), u("y")])
            .turn([kept(1)])
            .shows([
                "#1 u x | breaks=[1]",
                "#2 u x",
                "#3 u y",
                "= compaction",
                "| #2",
            ])
            .context("#2"),
        case("equal texts with other usage are told apart")
            .turn([
                a("x").used(charged(1, 1, 0.5)),
                a("x").used(charged(2, 2, 0.5)),
                u("y"),
            ])
            .turn([kept(1)])
            .shows([
                "#1 a x | use=1/1$0.5C",
                "#2 a x | use=2/2$0.5C",
                "#3 u y",
                "= compaction",
                "| #2",
            ])
            .context("#2")
            .live("1 turn 2/2 $0.5C last 2/2")
            .thread("2 turns 3/3 $1C last 2/2"),
        case("equal texts with other failures are told apart")
            .turn([t("x").fails("late"), t("x"), u("y")])
            .turn([kept(1)])
            .shows([
                "#1 t x | answers=c fails=late",
                "#2 t x | answers=c",
                "#3 u y",
                "= compaction",
                "| #2",
            ])
            .context("#2"),
        case("metadata is equal as JSON, in whatever order its keys stand")
            .turn([u("x").meta(json!({"a": 1, "b": [2]})), u("y")])
            .turn([kept(0).meta(serde_json::from_str(r#"{"b": [2], "a": 1}"#).unwrap())])
            .shows([
                r#"#1 u x | meta={"a":1,"b":[2]}"#,
                "#2 u y",
                "= compaction",
                "| #1",
            ])
            .context("#1"),
    ]
}

/// Rows that were read and edited.
fn revisions() -> Vec<Case> {
    vec![
        case("other metadata makes a revision that reads back as given")
            .turn([u("a"), u("b")])
            .request("r")
            .turn([kept(0).meta(json!({"edited": true}))])
            .request("r2")
            .shows([
                "#1 u a | req=r",
                "#2 u b | req=r",
                "= compaction | req=r2",
                r#"| #3 u a | revises=#1 req=r meta={"edited":true}"#,
            ])
            .context("#3"),
        case("other breakpoints make a revision")
            .turn([u("a"), u("b")])
            .turn([kept(0).breaks(&[4])])
            .shows([
                "#1 u a",
                "#2 u b",
                "= compaction",
                "| #3 u a | revises=#1 breaks=[4]",
            ])
            .context("#3"),
        case("another failure makes a revision")
            .turn([t("out"), u("b")])
            .turn([kept(0).fails("late")])
            .shows([
                "#1 t out | answers=c",
                "#2 u b",
                "= compaction",
                "| #3 t out | revises=#1 answers=c fails=late",
            ])
            .context("#3"),
        case("a usage that is taken away makes a revision, and stays counted once")
            .turn([u("q"), a("b")])
            .usage(charged(10, 5, 0.5))
            .turn([kept(1).without_usage()])
            .shows([
                "#1 u q",
                "#2 a b | use=10/5$0.5C",
                "= compaction",
                "| #3 a b | revises=#2",
            ])
            .context("#3")
            .live("nothing")
            .thread("1 turn 10/5 $0.5C last 10/5"),
        case("a usage that is changed makes a revision, and is not counted")
            .turn([u("q"), a("b")])
            .usage(charged(10, 5, 0.5))
            .turn([kept(1).used(charged(99, 9, 9.0))])
            .shows([
                "#1 u q",
                "#2 a b | use=10/5$0.5C",
                "= compaction",
                "| #3 a b | revises=#2 use=99/9$9C",
            ])
            .context("#3")
            .live("1 turn 99/9 $9C last 99/9")
            .thread("1 turn 10/5 $0.5C last 10/5"),
        case("another text with the same usage makes a revision")
            .turn([u("q"), a("long answer")])
            .usage(charged(10, 5, 0.5))
            .request("r")
            .turn([kept(1).says("short")])
            .shows([
                "#1 u q | req=r",
                "#2 a long answer | req=r use=10/5$0.5C",
                "= compaction",
                "| #3 a short | revises=#2 req=r use=10/5$0.5C",
            ])
            .context("#3")
            .spend("1 turn 10/5 $0.5C last 10/5"),
        case("another text without a usage makes a new row")
            .turn([u("q"), a("long answer")])
            .turn([kept(1).says("short")])
            .shows(["#1 u q", "#2 a long answer", "= compaction", "| #3 a short"])
            .context("#3"),
        case("another text with another usage makes a new row, and is counted")
            .turn([u("q"), a("long answer")])
            .usage(charged(10, 5, 0.5))
            .turn([kept(1).says("short").used(charged(1, 1, 0.25))])
            .shows([
                "#1 u q",
                "#2 a long answer | use=10/5$0.5C",
                "= compaction",
                "| #3 a short | use=1/1$0.25C",
            ])
            .context("#3")
            .live("1 turn 1/1 $0.25C last 1/1")
            .thread("2 turns 11/6 $0.75C last 1/1"),
        case("another request id makes a new row, and its usage is counted")
            .turn([u("q"), a("b")])
            .usage(charged(10, 5, 0.5))
            .request("r1")
            .turn([kept(1).claims("r2")])
            .shows([
                "#1 u q | req=r1",
                "#2 a b | req=r1 use=10/5$0.5C",
                "= compaction",
                "| #3 a b | req=r2 use=10/5$0.5C",
            ])
            .context("#3")
            .live("1 turn 10/5 $0.5C last 10/5")
            .thread("2 turns 20/10 $1C last 10/5"),
        case("a request id that is taken away makes a new row")
            .turn([u("a"), u("b")])
            .request("r")
            .turn([kept(0).claims_none()])
            .request("r2")
            .shows([
                "#1 u a | req=r",
                "#2 u b | req=r",
                "= compaction | req=r2",
                "| #3 u a",
            ])
            .context("#3"),
        case("an edited row that does not claim its request id is new")
            .turn([u("a"), u("b")])
            .turn([kept(0).fresh().meta(json!(1))])
            .shows(["#1 u a", "#2 u b", "= compaction", "| #3 u a | meta=1"])
            .context("#3"),
        case("a revision is a stored row that can be retained")
            .turn([u("a"), u("b")])
            .turn([kept(0).meta(json!(1)), u("c")])
            .turn([kept(1), kept(0)])
            .shows([
                "#1 u a",
                "#2 u b",
                "= compaction",
                "| #3 u a | revises=#1 meta=1",
                "| #4 u c",
                "= compaction",
                "| #4",
                "| #3",
            ])
            .context("#4 #3"),
        case("a revision can be revised, and the usage stays counted once")
            .turn([u("q"), a("b")])
            .usage(charged(10, 5, 0.5))
            .turn([kept(1).meta(json!(1))])
            .turn([kept(0).meta(json!(2)), u("c")])
            .replace([kept(0).meta(json!(3))])
            .shows([
                "#1 u q",
                "#2 a b | use=10/5$0.5C",
                "= compaction",
                "| #3 a b | revises=#2 use=10/5$0.5C meta=1",
                "#4 u c",
                "= compaction",
                "| #5 a b | revises=#3 use=10/5$0.5C meta=3",
            ])
            .context("#5")
            .spend("1 turn 10/5 $0.5C last 10/5"),
        case("replace makes revisions by the same rule")
            .turn([u("a"), u("b")])
            .replace([kept(1).meta(json!(1)), kept(0)])
            .shows([
                "#1 u a",
                "#2 u b",
                "= compaction",
                "| #3 u b | revises=#2 meta=1",
                "| #1",
            ])
            .context("#3 #1"),
        case("an extension makes no revisions")
            .turn([u("a")])
            .turn([kept(0).meta(json!(1)), u("b")])
            .shows(["#1 u a", "#2 u b"])
            .context("#1 #2"),
    ]
}

/// Which stored row a row takes where several would do.
fn order() -> Vec<Case> {
    vec![
        case("an exact row has its stored row before any revision, wherever it stands")
            .turn([u("x").meta(json!(1)), u("x").meta(json!(2)), u("y")])
            .turn([kept(0).meta(json!(3)), kept(0)])
            .shows([
                "#1 u x | meta=1",
                "#2 u x | meta=2",
                "#3 u y",
                "= compaction",
                "| #4 u x | revises=#2 meta=3",
                "| #1",
            ])
            .context("#4 #1"),
        case("revisions take the stored rows from the left")
            .turn([u("x").meta(json!(1)), u("x").meta(json!(2)), u("y")])
            .turn([kept(1).meta(json!(4)), kept(0).meta(json!(3))])
            .shows([
                "#1 u x | meta=1",
                "#2 u x | meta=2",
                "#3 u y",
                "= compaction",
                "| #4 u x | revises=#1 meta=4",
                "| #5 u x | revises=#2 meta=3",
            ])
            .context("#4 #5"),
        case("a revision of the same row comes before one of the same usage")
            .turn([
                a("one").used(charged(1, 1, 0.5)),
                a("two").used(charged(2, 2, 0.5)),
                u("y"),
            ])
            .turn([kept(0).says("two")])
            .shows([
                "#1 a one | use=1/1$0.5C",
                "#2 a two | use=2/2$0.5C",
                "#3 u y",
                "= compaction",
                "| #4 a two | revises=#2 use=1/1$0.5C",
            ])
            .context("#4")
            .live("1 turn 1/1 $0.5C last 1/1")
            .thread("2 turns 3/3 $1C last 2/2"),
        case("no two rows are revisions of one stored row")
            .turn([u("x"), u("y")])
            .turn([kept(1), kept(0).meta(json!(1)), kept(0).meta(json!(2))])
            .shows([
                "#1 u x",
                "#2 u y",
                "= compaction",
                "| #2",
                "| #3 u x | revises=#1 meta=1",
                "| #4 u x | meta=2",
            ])
            .context("#2 #3 #4"),
        case("a stored row that is retained is not revised as well")
            .turn([u("x"), u("y")])
            .turn([kept(1), kept(0).meta(json!(1)), kept(0)])
            .shows([
                "#1 u x",
                "#2 u y",
                "= compaction",
                "| #2",
                "| #3 u x | meta=1",
                "| #1",
            ])
            .context("#2 #3 #1"),
    ]
}
