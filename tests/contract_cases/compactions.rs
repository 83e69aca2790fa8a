//! What is a compaction, which rows it refers to and how it is shown (contract sections 4, step 6, and 5).

use serde_json::json;

use crate::dsl::{Case, a, calls, case, half, kept, remembered, s, t, u};

pub fn cases() -> Vec<Case> {
    vec![
        case("anything but an extension is one marker whose replacement is next")
            .turn([u("a"), a("b"), u("c")])
            .turn([a("summary"), kept(1), kept(2)])
            .request("r")
            .known(json!({"trigger": "auto", "tokens": 9}))
            .shows([
                "#1 u a",
                "#2 a b",
                "#3 u c",
                r#"= compaction | req=r known={"tokens":9,"trigger":"auto"}"#,
                "| #4 a summary | req=r",
                "| #2",
                "| #3",
            ])
            .context("#4 #2 #3"),
        case("dropping the tail is a compaction")
            .turn([u("a"), a("b")])
            .turn([kept(0)])
            .shows(["#1 u a", "#2 a b", "= compaction", "| #1"])
            .context("#1"),
        case("dropping everything is a compaction")
            .turn([u("a"), a("b")])
            .turn([])
            .shows(["#1 u a", "#2 a b", "= compaction"])
            .context(""),
        case("another order is a compaction")
            .turn([u("a"), u("b"), u("c")])
            .turn([kept(2), kept(0), kept(1)])
            .shows([
                "#1 u a",
                "#2 u b",
                "#3 u c",
                "= compaction",
                "| #3",
                "| #1",
                "| #2",
            ])
            .context("#3 #1 #2"),
        case("a row put in the middle makes a compaction")
            .turn([u("a"), u("b")])
            .turn([kept(0), a("between"), kept(1)])
            .shows([
                "#1 u a",
                "#2 u b",
                "= compaction",
                "| #1",
                "| #3 a between",
                "| #2",
            ])
            .context("#1 #3 #2"),
        case("another system row in front makes a compaction")
            .turn([s("rules"), u("a")])
            .turn([s("new rules"), kept(1), a("b")])
            .shows([
                "#1 s rules",
                "#2 u a",
                "= compaction",
                "| #3 s new rules",
                "| #2",
                "| #4 a b",
            ])
            .context("#3 #2 #4"),
        case("a kept row that is said otherwise makes a compaction")
            .turn([u("a"), a("b")])
            .turn([kept(0), kept(1).says("B")])
            .shows(["#1 u a", "#2 a b", "= compaction", "| #1", "| #3 a B"])
            .context("#1 #3"),
        case("a compaction that retains everything it has shows no new row")
            .turn([u("a"), u("b"), u("c")])
            .turn([kept(1), kept(2)])
            .request("r")
            .shows([
                "#1 u a",
                "#2 u b",
                "#3 u c",
                "= compaction | req=r",
                "| #2",
                "| #3",
            ])
            .context("#2 #3"),
        case("the rows behind a compaction are plain messages again")
            .turn([u("a"), u("b")])
            .turn([a("summary"), kept(1)])
            .turn([kept(0), kept(1), u("c")])
            .append(a("d"))
            .shows([
                "#1 u a",
                "#2 u b",
                "= compaction",
                "| #3 a summary",
                "| #2",
                "#4 u c",
                "#5 a d | ts=now",
            ])
            .context("#3 #2 #4 #5"),
        case("a compaction refers to rows that an earlier compaction stored")
            .turn([u("a"), u("b")])
            .turn([a("summary"), u("c")])
            .turn([a("shorter"), kept(1), kept(0)])
            .shows([
                "#1 u a",
                "#2 u b",
                "= compaction",
                "| #3 a summary",
                "| #4 u c",
                "= compaction",
                "| #5 a shorter",
                "| #4",
                "| #3",
            ])
            .context("#5 #4 #3"),
        case("a row that was compacted away is a new row when an extension brings it back")
            .turn([u("a"), u("b")])
            .remember()
            .turn([kept(0)])
            .turn([kept(0), remembered(1)])
            .shows(["#1 u a", "#2 u b", "= compaction", "| #1", "#3 u b"])
            .context("#1 #3"),
        case("a row that was compacted away is a new row when a compaction brings it back")
            .turn([u("a"), u("b")])
            .remember()
            .turn([kept(0)])
            .turn([remembered(1), kept(0)])
            .shows([
                "#1 u a",
                "#2 u b",
                "= compaction",
                "| #1",
                "= compaction",
                "| #3 u b",
                "| #1",
            ])
            .context("#3 #1"),
        case("calls and their results are retained like other rows")
            .turn([u("q"), calls("look"), t("out"), a("done")])
            .turn([kept(1), kept(2), kept(3)])
            .shows([
                "#1 u q",
                "#2 a look | calls=c",
                "#3 t out | answers=c",
                "#4 a done",
                "= compaction",
                "| #2",
                "| #3",
                "| #4",
            ])
            .context("#2 #3 #4"),
        case("an appended row keeps its time where it is retained")
            .append(u("a"))
            .append(u("b"))
            .turn([a("summary"), kept(1)])
            .shows([
                "#1 u a | ts=now",
                "#2 u b | ts=now",
                "= compaction",
                "| #3 a summary",
                "| #2",
            ])
            .context("#3 #2"),
        case("the partial of a compacting turn stands behind its marker")
            .turn([u("a")])
            .turn([a("summary")])
            .request("r")
            .partial(half("ha"))
            .shows([
                "#1 u a",
                "= compaction | req=r",
                "| #2 a summary | req=r",
                "#3 a ha | interrupted=yes req=r ts=now",
            ])
            .context("#2"),
        case("a partial is never retained")
            .turn([u("a")])
            .partial(half("ha"))
            .turn([a("summary"), kept(0)])
            .shows([
                "#1 u a",
                "#2 a ha | interrupted=yes ts=now",
                "= compaction",
                "| #3 a summary",
                "| #1",
            ])
            .context("#3 #1"),
        case("what the host knew of a compaction is ignored by an extension")
            .turn([u("a")])
            .turn([kept(0), a("b")])
            .known(json!({"trigger": "auto"}))
            .shows(["#1 u a", "#2 a b"])
            .context("#1 #2"),
        case("what the host knew of a compaction is ignored by a first write")
            .turn([u("a")])
            .known(json!({"trigger": "auto"}))
            .shows(["#1 u a"])
            .context("#1"),
        case("replace is a marker without a request id")
            .turn([u("a")])
            .replace([u("x").req("r1"), u("y").claims("r2"), u("z")])
            .shows([
                "#1 u a",
                "= compaction",
                "| #2 u x | req=r1",
                "| #3 u y | req=r2",
                "| #4 u z",
            ])
            .context("#2 #3 #4"),
        case("replace retains rows by reference")
            .turn([u("a"), a("b"), u("c")])
            .replace([kept(2), a("x"), kept(0)])
            .shows([
                "#1 u a",
                "#2 a b",
                "#3 u c",
                "= compaction",
                "| #3",
                "| #4 a x",
                "| #1",
            ])
            .context("#3 #4 #1"),
        case("replace checks no baseline")
            .turn([u("a")])
            .remember()
            .append(a("newer"))
            .replace([remembered(0)])
            .shows(["#1 u a", "#2 a newer | ts=now", "= compaction", "| #1"])
            .context("#1"),
        case("replace by the rows that are stored is a marker too")
            .turn([u("a"), a("b")])
            .replace([kept(0), kept(1)])
            .shows(["#1 u a", "#2 a b", "= compaction", "| #1", "| #2"])
            .context("#1 #2"),
        case("replace by a longer list is a marker too")
            .turn([u("a")])
            .replace([kept(0), a("b")])
            .shows(["#1 u a", "= compaction", "| #1", "| #2 a b"])
            .context("#1 #2"),
        case("replace by nothing leaves an empty context")
            .turn([u("a")])
            .replace([])
            .shows(["#1 u a", "= compaction"])
            .context(""),
        case("replace as a first write is plain messages")
            .replace([u("a"), u("b").req("r")])
            .shows(["#1 u a", "#2 u b | req=r"])
            .context("#1 #2"),
        case("replace as a first write without rows makes the transcript exist")
            .replace([])
            .shows([])
            .context(""),
        case("replace leaves the tools record in force")
            .turn([u("a")])
            .with_tools(json!(["t"]))
            .replace([u("b")])
            .shows(["#1 u a", "= compaction", "| #2 u b"])
            .context("#2")
            .tools(json!(["t"])),
        case("clear is a marker without rows and without a request id")
            .turn([u("a")])
            .request("r")
            .clear()
            .shows(["#1 u a | req=r", "= compaction"])
            .context(""),
        case("a cleared row cannot be retained")
            .turn([u("a")])
            .remember()
            .clear()
            .turn([remembered(0)])
            .shows(["#1 u a", "= compaction", "#2 u a"])
            .context("#2"),
        case("clear on an unwritten transcript changes nothing")
            .clear()
            .context(""),
        case("a transcript can be cleared again and again")
            .turn([u("a")])
            .clear()
            .append(u("b"))
            .clear()
            .shows(["#1 u a", "= compaction", "#2 u b | ts=now", "= compaction"])
            .context(""),
    ]
}
