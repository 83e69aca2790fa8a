//! Where the usage and the request id of a call go (contract section 4, stamping).

use crate::dsl::{Case, a, calls, case, charged, half, kept, other, s, t, u, used};

pub fn cases() -> Vec<Case> {
    let mut cases = usages();
    cases.extend(usage_records());
    cases.extend(request_ids());
    cases
}

/// The usage of a call finds a row.
fn usages() -> Vec<Case> {
    vec![
        case("the usage of a call goes to the last assistant row")
            .turn([u("q"), a("one"), t("out"), a("two"), u("tail")])
            .usage(charged(10, 5, 0.5))
            .shows([
                "#1 u q",
                "#2 a one",
                "#3 t out | answers=c",
                "#4 a two | use=10/5$0.5C",
                "#5 u tail",
            ])
            .context("#1 #2 #3 #4 #5")
            .spend("1 turn 10/5 $0.5C last 10/5"),
        case("other rows keep the usage that they carry")
            .turn([u("q"), a("one").used(charged(1, 1, 0.25)), a("two")])
            .usage(charged(10, 5, 0.5))
            .shows(["#1 u q", "#2 a one | use=1/1$0.25C", "#3 a two | use=10/5$0.5C"])
            .context("#1 #2 #3")
            .spend("2 turns 11/6 $0.75C last 10/5"),
        case("in an extension the last of the new rows gets the usage, not a stored one")
            .turn([u("q"), a("one")])
            .turn([kept(0), kept(1), u("q2"), a("two")])
            .usage(charged(10, 5, 0.5))
            .shows(["#1 u q", "#2 a one", "#3 u q2", "#4 a two | use=10/5$0.5C"])
            .context("#1 #2 #3 #4")
            .spend("1 turn 10/5 $0.5C last 10/5"),
        case("an assistant row that issues calls gets it like any other")
            .turn([u("q"), calls("look")])
            .usage(charged(10, 5, 0.5))
            .shows(["#1 u q", "#2 a look | use=10/5$0.5C calls=c"])
            .context("#1 #2")
            .spend("1 turn 10/5 $0.5C last 10/5"),
        case("a new row that claims its request id gets the usage too")
            .turn([u("q"), a("one").claims("mine")])
            .request("r")
            .usage(charged(10, 5, 0.5))
            .shows(["#1 u q | req=r", "#2 a one | req=mine use=10/5$0.5C"])
            .context("#1 #2")
            .spend("1 turn 10/5 $0.5C last 10/5"),
        case("in a compaction the last new assistant row gets the usage, kept ones behind it do not")
            .turn([u("q"), a("one"), a("two")])
            .turn([a("summary"), kept(2)])
            .usage(charged(10, 5, 0.5))
            .shows([
                "#1 u q",
                "#2 a one",
                "#3 a two",
                "= compaction",
                "| #4 a summary | use=10/5$0.5C",
                "| #3",
            ])
            .context("#4 #3")
            .spend("1 turn 10/5 $0.5C last 10/5"),
        case("a usage equal to the one that its row carries is one")
            .turn([u("q"), a("one").used(charged(10, 5, 0.5))])
            .usage(charged(10, 5, 0.5))
            .shows(["#1 u q", "#2 a one | use=10/5$0.5C"])
            .context("#1 #2")
            .spend("1 turn 10/5 $0.5C last 10/5"),
        case("a usage other than the one that its row carries takes its place, and that one stands alone")
            .turn([u("q"), a("one").used(used(10, 5))])
            .usage(charged(10, 5, 0.5))
            .request("r")
            .shows([
                "#1 u q | req=r",
                "#2 a one | req=r use=10/5$0.5C",
                "+ #3 use=10/5 | req=r",
            ])
            .context("#1 #2")
            .live("1 turn 10/5 $0.5C last 10/5")
            .thread("2 turns 20/10 $0.5 priced $0.5C unpriced 1:10/5 last 10/5"),
        case("append keeps the usage of an assistant row")
            .append(a("one").used(charged(10, 5, 0.5)))
            .shows(["#1 a one | use=10/5$0.5C ts=now"])
            .context("#1")
            .spend("1 turn 10/5 $0.5C last 10/5"),
        case("replace keeps the usage of its assistant rows")
            .append(u("q"))
            .replace([a("one").used(charged(10, 5, 0.5)), a("two").used(charged(1, 1, 0.25))])
            .shows([
                "#1 u q | ts=now",
                "= compaction",
                "| #2 a one | use=10/5$0.5C",
                "| #3 a two | use=1/1$0.25C",
            ])
            .context("#2 #3")
            .spend("2 turns 11/6 $0.75C last 1/1"),
    ]
}

/// A usage finds no row and is kept all the same.
fn usage_records() -> Vec<Case> {
    vec![
        case("without a new assistant row the usage is a record of its own")
            .turn([u("q")])
            .usage(charged(10, 5, 0.5))
            .request("r")
            .shows(["#1 u q | req=r", "+ #2 use=10/5$0.5C | req=r"])
            .context("#1")
            .live("nothing")
            .thread("1 turn 10/5 $0.5C last 10/5"),
        case("a turn without rows leaves its usage as a record")
            .turn([])
            .usage(charged(10, 5, 0.5))
            .shows(["+ #1 use=10/5$0.5C"])
            .context("")
            .live("nothing")
            .thread("1 turn 10/5 $0.5C last 10/5"),
        case("a turn that changes nothing leaves its usage as a record")
            .turn([u("q"), a("one")])
            .turn([kept(0), kept(1)])
            .usage(charged(10, 5, 0.5))
            .request("r")
            .shows(["#1 u q", "#2 a one", "+ #3 use=10/5$0.5C | req=r"])
            .context("#1 #2")
            .live("nothing")
            .thread("1 turn 10/5 $0.5C last 10/5"),
        case("the usage of an interrupted turn is a record beside its partial")
            .turn([u("q")])
            .usage(charged(10, 5, 0.5))
            .request("r")
            .partial(half("ans"))
            .shows([
                "#1 u q | req=r",
                "#2 a ans | interrupted=yes req=r ts=now",
                "+ #3 use=10/5$0.5C | req=r",
            ])
            .context("#1")
            .live("nothing")
            .thread("1 turn 10/5 $0.5C last 10/5"),
        case("a usage is never put on a kept row, which keeps its own")
            .turn([u("q"), a("one").used(charged(1, 1, 0.25))])
            .turn([kept(1)])
            .usage(charged(10, 5, 0.5))
            .shows([
                "#1 u q",
                "#2 a one | use=1/1$0.25C",
                "= compaction",
                "| #2",
                "+ #3 use=10/5$0.5C",
            ])
            .context("#2")
            .live("1 turn 1/1 $0.25C last 1/1")
            .thread("2 turns 11/6 $0.75C last 10/5"),
        case("a usage is never put on a kept row that has none")
            .turn([u("q"), a("one")])
            .turn([kept(1)])
            .usage(charged(10, 5, 0.5))
            .shows([
                "#1 u q",
                "#2 a one",
                "= compaction",
                "| #2",
                "+ #3 use=10/5$0.5C",
            ])
            .context("#2")
            .live("nothing")
            .thread("1 turn 10/5 $0.5C last 10/5"),
        case("a usage is never put on a revision, which reads back as given")
            .turn([u("q"), a("one")])
            .turn([kept(1).breaks(&[1])])
            .usage(charged(10, 5, 0.5))
            .shows([
                "#1 u q",
                "#2 a one",
                "= compaction",
                "| #3 a one | revises=#2 breaks=[1]",
                "+ #4 use=10/5$0.5C",
            ])
            .context("#3")
            .live("nothing")
            .thread("1 turn 10/5 $0.5C last 10/5"),
        case("usage on a user row becomes a record")
            .turn([u("q").used(charged(10, 5, 0.5)), a("one")])
            .shows(["#1 u q", "#2 a one", "+ #3 use=10/5$0.5C"])
            .context("#1 #2")
            .live("nothing")
            .thread("1 turn 10/5 $0.5C last 10/5"),
        case("usage on a tool row becomes a record")
            .turn([t("out").used(charged(10, 5, 0.5))])
            .shows(["#1 t out | answers=c", "+ #2 use=10/5$0.5C"])
            .context("#1")
            .live("nothing")
            .thread("1 turn 10/5 $0.5C last 10/5"),
        case("usage on a system row and on a row of the host's own role become records")
            .turn([s("rules").used(charged(1, 1, 0.25))])
            .turn([kept(0), other("narrator", "x").used(charged(2, 2, 0.25))])
            .shows([
                "#1 s rules",
                "#2 narrator x",
                "+ #3 use=1/1$0.25C",
                "+ #4 use=2/2$0.25C",
            ])
            .context("#1 #2")
            .live("nothing")
            .thread("2 turns 3/3 $0.5C last 2/2"),
        case("an appended row of another role leaves its usage as a record")
            .append(u("q").used(charged(10, 5, 0.5)))
            .shows(["#1 u q | ts=now", "+ #2 use=10/5$0.5C"])
            .context("#1")
            .live("nothing")
            .thread("1 turn 10/5 $0.5C last 10/5"),
        case("a replacing row of another role leaves its usage as a record")
            .append(a("x"))
            .replace([u("q").used(charged(10, 5, 0.5))])
            .shows([
                "#1 a x | ts=now",
                "= compaction",
                "| #2 u q",
                "+ #3 use=10/5$0.5C",
            ])
            .context("#2")
            .live("nothing")
            .thread("1 turn 10/5 $0.5C last 10/5"),
    ]
}

fn request_ids() -> Vec<Case> {
    vec![
        case("new rows get the request id of the call, whatever they do not claim")
            .turn([u("a"), u("b").req("own"), a("c")])
            .request("r")
            .shows(["#1 u a | req=r", "#2 u b | req=r", "#3 a c | req=r"])
            .context("#1 #2 #3"),
        case("a call without a request id leaves unclaimed rows without one")
            .turn([u("a").req("own")])
            .shows(["#1 u a"])
            .context("#1"),
        case("a row that claims its request id keeps it")
            .turn([u("a").claims("own"), u("b")])
            .request("r")
            .shows(["#1 u a | req=own", "#2 u b | req=r"])
            .context("#1 #2"),
        case("a row that claims to have none keeps none")
            .turn([u("a").claims_none(), u("b")])
            .request("r")
            .shows(["#1 u a", "#2 u b | req=r"])
            .context("#1 #2"),
        case("a row that was read keeps its request id where it is stored again")
            .turn([u("a")])
            .request("r1")
            .turn([kept(0), kept(0)])
            .request("r2")
            .shows(["#1 u a | req=r1", "#2 u a | req=r1"])
            .context("#1 #2"),
        case("in a compaction only the new rows get the request id")
            .turn([u("a"), u("b")])
            .request("r1")
            .turn([a("summary"), kept(1)])
            .request("r2")
            .shows([
                "#1 u a | req=r1",
                "#2 u b | req=r1",
                "= compaction | req=r2",
                "| #3 a summary | req=r2",
                "| #2",
            ])
            .context("#3 #2"),
    ]
}
