//! Step stamps: which earlier rows of a turn get a step and a time (contract section 4, stamping, and 1.13).

use crate::dsl::{Case, a, calls, case, charged, kept, s, t, u, used};

const AT: &str = "2026-01-02T03:04:05Z";

pub fn cases() -> Vec<Case> {
    vec![
        case("the steps before the last are numbered down from it and have its time")
            .turn([u("q"), calls("one"), t("out"), a("two"), a("answer")])
            .usage(charged(10, 5, 0.5).step(3).at(AT))
            .shows([
                "#1 u q",
                "#2 a one | step=1 ts=2026-01-02T03:04:05Z calls=c",
                "#3 t out | answers=c",
                "#4 a two | step=2 ts=2026-01-02T03:04:05Z",
                "#5 a answer | use=10/5$0.5C,step:3,at:2026-01-02T03:04:05Z step=3 ts=2026-01-02T03:04:05Z",
            ])
            .context("#1 #2 #3 #4 #5")
            .spend("1 turn 10/5 $0.5C last 10/5 context 5=3+1"),
        case("without a time the steps have none")
            .turn([u("q"), a("one"), a("answer")])
            .usage(charged(9, 3, 0.5).step(2))
            .shows(["#1 u q", "#2 a one | step=1", "#3 a answer | use=9/3$0.5C,step:2 step=2"])
            .context("#1 #2 #3")
            .spend("1 turn 9/3 $0.5C last 9/3 context 6=4+1"),
        case("a step is at least 1")
            .turn([u("q"), a("one"), a("two"), a("three"), a("answer")])
            .usage(charged(10, 5, 0.5).step(2))
            .shows([
                "#1 u q",
                "#2 a one | step=1",
                "#3 a two | step=1",
                "#4 a three | step=1",
                "#5 a answer | use=10/5$0.5C,step:2 step=2",
            ])
            .context("#1 #2 #3 #4 #5")
            .spend("1 turn 10/5 $0.5C last 10/5 context 7=5+2"),
        case("a turn of more steps than rows begins later")
            .turn([u("q"), a("one"), a("answer")])
            .usage(charged(70, 7, 0.5).step(7))
            .shows(["#1 u q", "#2 a one | step=6", "#3 a answer | use=70/7$0.5C,step:7 step=7"])
            .context("#1 #2 #3")
            .spend("1 turn 70/7 $0.5C last 70/7 context 11=10+1"),
        case("a usage whose step is not recorded stamps nothing")
            .turn([u("q"), a("one"), a("answer")])
            .usage(charged(10, 5, 0.5).at(AT))
            .shows([
                "#1 u q",
                "#2 a one",
                "#3 a answer | use=10/5$0.5C,at:2026-01-02T03:04:05Z ts=2026-01-02T03:04:05Z",
            ])
            .context("#1 #2 #3")
            .spend("1 turn 10/5 $0.5C last 10/5"),
        case("a turn without usage stamps nothing")
            .turn([u("q"), a("one"), a("answer")])
            .shows(["#1 u q", "#2 a one", "#3 a answer"])
            .context("#1 #2 #3"),
        case("assistant rows before the last user row are of another turn")
            .turn([u("q1"), a("answer 1"), u("q2"), a("one"), a("answer 2")])
            .usage(charged(10, 5, 0.5).step(2))
            .shows([
                "#1 u q1",
                "#2 a answer 1",
                "#3 u q2",
                "#4 a one | step=1",
                "#5 a answer 2 | use=10/5$0.5C,step:2 step=2",
            ])
            .context("#1 #2 #3 #4 #5")
            .spend("1 turn 10/5 $0.5C last 10/5 context 7=5+2"),
        case("a user row behind the last assistant row does not end its turn")
            .turn([u("q"), a("one"), a("answer"), u("tail")])
            .usage(charged(10, 5, 0.5).step(2))
            .shows([
                "#1 u q",
                "#2 a one | step=1",
                "#3 a answer | use=10/5$0.5C,step:2 step=2",
                "#4 u tail",
            ])
            .context("#1 #2 #3 #4")
            .spend("1 turn 10/5 $0.5C last 10/5 context 7=5+2"),
        case("rows of other roles are not counted as steps")
            .turn([u("q"), s("note"), a("one"), t("out"), s("note"), a("answer")])
            .usage(charged(10, 5, 0.5).step(2))
            .shows([
                "#1 u q",
                "#2 s note",
                "#3 a one | step=1",
                "#4 t out | answers=c",
                "#5 s note",
                "#6 a answer | use=10/5$0.5C,step:2 step=2",
            ])
            .context("#1 #2 #3 #4 #5 #6")
            .spend("1 turn 10/5 $0.5C last 10/5 context 7=5+2"),
        case("rows that were stored before are not stamped, and not counted")
            .turn([u("q"), a("one")])
            .turn([kept(0), kept(1), a("two"), a("answer")])
            .usage(charged(30, 6, 0.5).step(3))
            .shows([
                "#1 u q",
                "#2 a one",
                "#3 a two | step=2",
                "#4 a answer | use=30/6$0.5C,step:3 step=3",
            ])
            .context("#1 #2 #3 #4")
            .spend("1 turn 30/6 $0.5C last 30/6 context 12=10+2"),
        case("a last assistant row that was read stamps no steps")
            .turn([u("q"), a("one"), a("answer").claims("r")])
            .usage(charged(10, 5, 0.5).step(2))
            .shows(["#1 u q", "#2 a one", "#3 a answer | req=r use=10/5$0.5C,step:2 step=2"])
            .context("#1 #2 #3")
            .spend("1 turn 10/5 $0.5C last 10/5 context 7=5+2"),
        case("a stamp is shown before the step and the time of the row's own usage")
            .turn([u("q"), a("one").used(used(1, 1).step(9).at("early")), a("answer")])
            .usage(charged(10, 5, 0.5).step(2).at(AT))
            .shows([
                "#1 u q",
                "#2 a one | use=1/1,step:9,at:early step=1 ts=2026-01-02T03:04:05Z",
                "#3 a answer | use=10/5$0.5C,step:2,at:2026-01-02T03:04:05Z step=2 ts=2026-01-02T03:04:05Z",
            ])
            .context("#1 #2 #3")
            .spend("2 turns 11/6 $0.5 priced $0.5C unpriced 1:1/1 last 10/5 context 7=5+2"),
        case("a row without a stamp shows the step and the time of its usage")
            .turn([u("q"), a("answer").used(charged(10, 5, 0.5).step(4).at("late"))])
            .shows(["#1 u q", "#2 a answer | use=10/5$0.5C,step:4,at:late step=4 ts=late"])
            .context("#1 #2")
            .spend("1 turn 10/5 $0.5C last 10/5 context 3=2+1"),
        case("an appended row with a usage that has a time shows that time")
            .append(a("answer").used(charged(10, 5, 0.5).at("late")))
            .shows(["#1 a answer | use=10/5$0.5C,at:late ts=late"])
            .context("#1")
            .spend("1 turn 10/5 $0.5C last 10/5"),
        case("new rows of a compaction are stamped, kept ones are not")
            .turn([u("old"), u("q"), a("before")])
            .turn([kept(1), kept(2), a("one"), a("answer")])
            .usage(charged(30, 6, 0.5).step(3))
            .shows([
                "#1 u old",
                "#2 u q",
                "#3 a before",
                "= compaction",
                "| #2",
                "| #3",
                "| #4 a one | step=2",
                "| #5 a answer | use=30/6$0.5C,step:3 step=3",
            ])
            .context("#2 #3 #4 #5")
            .spend("1 turn 30/6 $0.5C last 30/6 context 12=10+2"),
        case("a stamp stays with a row that is retained")
            .turn([u("q"), a("one"), a("answer")])
            .usage(charged(10, 5, 0.5).step(2).at(AT))
            .turn([kept(1)])
            .shows([
                "#1 u q",
                "#2 a one | step=1 ts=2026-01-02T03:04:05Z",
                "#3 a answer | use=10/5$0.5C,step:2,at:2026-01-02T03:04:05Z step=2 ts=2026-01-02T03:04:05Z",
                "= compaction",
                "| #2",
            ])
            .context("#2")
            .live("nothing")
            .thread("1 turn 10/5 $0.5C last 10/5 context 7=5+2"),
    ]
}
