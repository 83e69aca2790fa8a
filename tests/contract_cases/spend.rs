//! Sums: of a live context, and of a thread over its whole history (contract section 7). All numbers are literal.

use transcript_redb::UsageCostSource::{Charged, Estimated, Unknown};

use crate::dsl::{Case, Usage, a, case, charged, kept, u, used};

fn estimated(input: u64, output: u64, cost: f64) -> Usage {
    used(input, output).cost(cost, Some(Estimated))
}

fn unknown(input: u64, output: u64, cost: f64) -> Usage {
    used(input, output).cost(cost, Some(Unknown))
}

fn unsourced(input: u64, output: u64, cost: f64) -> Usage {
    used(input, output).cost(cost, None)
}

/// 2^-13 USD is 122,070,312.5 units of 10^-12 USD: exactly between two of them.
const HALF_UNIT: f64 = 0.000_122_070_312_5;

pub fn cases() -> Vec<Case> {
    let mut cases = of_one_sequence();
    cases.extend(of_money());
    cases.extend(of_history());
    cases
}

/// What is counted of one usage, and what stays of the last.
fn of_one_sequence() -> Vec<Case> {
    vec![
        case("the worked example: four sources of cost")
            .append(a("1").used(charged(1, 0, 0.10)))
            .append(a("2").used(estimated(2, 0, 0.20)))
            .append(a("3").used(unknown(3, 0, 1.00)))
            .append(a("4").used(unsourced(4, 0, 2.00)))
            .shows([
                "#1 a 1 | use=1/0$0.1C ts=now",
                "#2 a 2 | use=2/0$0.2E ts=now",
                "#3 a 3 | use=3/0$1U ts=now",
                "#4 a 4 | use=4/0$2 ts=now",
            ])
            .context("#1 #2 #3 #4")
            .spend("4 turns 10/0 $3.3 priced $0.3E unpriced 2:7/0 last 4/0"),
        case("a thread without a usage has spent nothing")
            .turn([u("q"), a("answer")])
            .shows(["#1 u q", "#2 a answer"])
            .context("#1 #2")
            .spend("nothing"),
        case("a usage of zeros without calls is a turn")
            .append(a("x").used(used(0, 0)))
            .shows(["#1 a x | use=0/0 ts=now"])
            .context("#1")
            .spend("1 turn 0/0 $0 unpriced 1:0/0 last 0/0"),
        case("a usage that only records calls is skipped")
            .append(a("x").used(charged(10, 5, 0.5)))
            .append(a("y").used(used(0, 0).calling().model("m").window(9)))
            .shows([
                "#1 a x | use=10/5$0.5C ts=now",
                "#2 a y | use=0/0,window:9,model:m,calls:1 ts=now",
            ])
            .context("#1 #2")
            .spend("1 turn 10/5 $0.5C last 10/5"),
        case("calls with tokens are a turn")
            .append(a("x").used(used(1, 0).calling()))
            .shows(["#1 a x | use=1/0,calls:1 ts=now"])
            .context("#1")
            .spend("1 turn 1/0 $0 unpriced 1:1/0 last 1/0"),
        case("calls with cached tokens alone are a turn")
            .append(a("x").used(used(0, 0).cached(1).calling()))
            .shows(["#1 a x | use=0/0(1),calls:1 ts=now"])
            .context("#1")
            .spend("1 turn 0/0(1) $0 unpriced 1:0/0(1) last 0/0"),
        case("calls with a cost are a turn")
            .append(a("x").used(charged(0, 0, 0.5).calling()))
            .shows(["#1 a x | use=0/0$0.5C,calls:1 ts=now"])
            .context("#1")
            .spend("1 turn 0/0 $0.5C last 0/0"),
        case("cached tokens are summed beside the input that holds them")
            .append(a("x").used(charged(10, 5, 0.5).cached(4)))
            .append(a("y").used(charged(20, 5, 0.5).cached(6)))
            .shows([
                "#1 a x | use=10/5(4)$0.5C ts=now",
                "#2 a y | use=20/5(6)$0.5C ts=now",
            ])
            .context("#1 #2")
            .spend("2 turns 30/10(10) $1C last 20/5"),
        case("the context is that of the last call where it is known")
            .append(a("x").used(charged(100, 30, 0.5).last_call(40, 7).step(3)))
            .shows(["#1 a x | use=100/30$0.5C,last:40/7,step:3 step=3 ts=now"])
            .context("#1")
            .spend("1 turn 100/30 $0.5C last 100/30 context 47=40+7"),
        case("a last call without input is not known")
            .append(a("x").used(charged(100, 30, 0.5).last_call(0, 7).step(4)))
            .shows(["#1 a x | use=100/30$0.5C,last:0/7,step:4 step=4 ts=now"])
            .context("#1")
            .spend("1 turn 100/30 $0.5C last 100/30 context 32=25+7"),
        case("without a last call the context is the average over the steps")
            .append(a("x").used(charged(100, 31, 0.5).step(3)))
            .shows(["#1 a x | use=100/31$0.5C,step:3 step=3 ts=now"])
            .context("#1")
            .spend("1 turn 100/31 $0.5C last 100/31 context 43=33+10"),
        case("without steps the context is the whole turn")
            .append(a("x").used(charged(100, 31, 0.5)))
            .shows(["#1 a x | use=100/31$0.5C ts=now"])
            .context("#1")
            .spend("1 turn 100/31 $0.5C last 100/31"),
        case("the model and the window are the newest that are known")
            .append(a("x").used(charged(1, 1, 0.5).model("m1").window(100)))
            .append(a("y").used(charged(2, 2, 0.5).model("m2")))
            .append(a("z").used(charged(3, 3, 0.5)))
            .shows([
                "#1 a x | use=1/1$0.5C,window:100,model:m1 ts=now",
                "#2 a y | use=2/2$0.5C,model:m2 ts=now",
                "#3 a z | use=3/3$0.5C ts=now",
            ])
            .context("#1 #2 #3")
            .spend("3 turns 6/6 $1.5C last 3/3 model m2 window 100"),
        case("token sums saturate")
            .append(a("x").used(charged(u64::MAX, 1, 0.0)))
            .append(a("y").used(charged(1, 2, 0.0)))
            .shows([
                "#1 a x | use=18446744073709551615/1$0C ts=now",
                "#2 a y | use=1/2$0C ts=now",
            ])
            .context("#1 #2")
            .spend("2 turns 18446744073709551615/3 $0C last 1/2"),
    ]
}

fn of_money() -> Vec<Case> {
    vec![
        case("a charged and an estimated cost are priced together, as estimated")
            .append(a("x").used(estimated(1, 1, 0.25)))
            .append(a("y").used(charged(1, 1, 0.5)))
            .shows([
                "#1 a x | use=1/1$0.25E ts=now",
                "#2 a y | use=1/1$0.5C ts=now",
            ])
            .context("#1 #2")
            .spend("2 turns 2/2 $0.75E last 1/1"),
        case("an unknown cost is in the sum, not in what is priced")
            .append(a("x").used(unknown(7, 3, 0.25)))
            .append(a("y").used(charged(1, 1, 0.5)))
            .shows([
                "#1 a x | use=7/3$0.25U ts=now",
                "#2 a y | use=1/1$0.5C ts=now",
            ])
            .context("#1 #2")
            .spend("2 turns 8/4 $0.75 priced $0.5C unpriced 1:7/3 last 1/1"),
        case("a legacy cost of no source is in the sum, not in what is priced")
            .append(a("x").used(unsourced(7, 3, 0.25).cached(2)))
            .shows(["#1 a x | use=7/3(2)$0.25 ts=now"])
            .context("#1")
            .spend("1 turn 7/3(2) $0.25 unpriced 1:7/3(2) last 7/3"),
        case("a cost of zero that was charged is priced")
            .append(a("x").used(charged(7, 3, 0.0)))
            .shows(["#1 a x | use=7/3$0C ts=now"])
            .context("#1")
            .spend("1 turn 7/3 $0C last 7/3"),
        case("a refund is a negative cost")
            .append(a("x").used(charged(7, 3, 0.75)))
            .append(a("y").used(used(0, 0).cost(-0.5, Some(Charged))))
            .shows([
                "#1 a x | use=7/3$0.75C ts=now",
                "#2 a y | use=0/0$-0.5C ts=now",
            ])
            .context("#1 #2")
            .spend("2 turns 7/3 $0.25C last 0/0"),
        case("a tenth and two tenths are three tenths")
            .append(a("x").used(charged(1, 0, 0.1)))
            .append(a("y").used(charged(1, 0, 0.2)))
            .shows([
                "#1 a x | use=1/0$0.1C ts=now",
                "#2 a y | use=1/0$0.2C ts=now",
            ])
            .context("#1 #2")
            .spend("2 turns 2/0 $0.3C last 1/0"),
        case("a small cost is not lost beside a large one")
            .append(a("x").used(charged(1, 0, 1e9)))
            .append(a("y").used(charged(1, 0, 1e-12)))
            .append(a("z").used(charged(1, 0, -1e9)))
            .shows([
                "#1 a x | use=1/0$1000000000C ts=now",
                "#2 a y | use=1/0$0.000000000001C ts=now",
                "#3 a z | use=1/0$-1000000000C ts=now",
            ])
            .context("#1 #2 #3")
            .spend("3 turns 3/0 $0.000000000001C last 1/0"),
        case("half a unit is rounded to the even one, below")
            .append(a("x").used(charged(1, 0, HALF_UNIT)))
            .shows(["#1 a x | use=1/0$0.0001220703125C ts=now"])
            .context("#1")
            .spend("1 turn 1/0 $0.000122070312C last 1/0"),
        case("half a unit is rounded to the even one, above")
            .append(a("x").used(charged(1, 0, 3.0 * HALF_UNIT)))
            .shows(["#1 a x | use=1/0$0.0003662109375C ts=now"])
            .context("#1")
            .spend("1 turn 1/0 $0.000366210938C last 1/0"),
        case("each usage is rounded by itself")
            .append(a("x").used(charged(1, 0, HALF_UNIT)))
            .append(a("y").used(charged(1, 0, HALF_UNIT)))
            .shows([
                "#1 a x | use=1/0$0.0001220703125C ts=now",
                "#2 a y | use=1/0$0.0001220703125C ts=now",
            ])
            .context("#1 #2")
            .spend("2 turns 2/0 $0.000244140624C last 1/0"),
        case("less than half a unit is nothing")
            .append(a("x").used(charged(1, 0, 1e-13)))
            .shows(["#1 a x | use=1/0$0.0000000000001C ts=now"])
            .context("#1")
            .spend("1 turn 1/0 $0C last 1/0"),
    ]
}

/// What a thread counts that its live context no longer has.
fn of_history() -> Vec<Case> {
    vec![
        case("a thread keeps what a compaction dropped")
            .turn([u("q"), a("one")])
            .usage(charged(10, 5, 0.5))
            .turn([a("summary")])
            .usage(charged(3, 2, 0.25))
            .shows([
                "#1 u q",
                "#2 a one | use=10/5$0.5C",
                "= compaction",
                "| #3 a summary | use=3/2$0.25C",
            ])
            .context("#3")
            .live("1 turn 3/2 $0.25C last 3/2")
            .thread("2 turns 13/7 $0.75C last 3/2"),
        case("a thread keeps what a replacement and a clear dropped")
            .append(a("x").used(charged(1, 1, 0.5)))
            .replace([a("y").used(charged(2, 2, 0.5))])
            .clear()
            .shows([
                "#1 a x | use=1/1$0.5C ts=now",
                "= compaction",
                "| #2 a y | use=2/2$0.5C",
                "= compaction",
            ])
            .context("")
            .live("nothing")
            .thread("2 turns 3/3 $1C last 2/2"),
        case("a retained row counts once, however often it is retained")
            .append(a("x").used(charged(1, 1, 0.5)))
            .append(u("y"))
            .turn([kept(0)])
            .replace([kept(0)])
            .begin()
            .turn([kept(0)])
            .turn([a("summary"), kept(0)])
            .shows([
                "#1 a x | use=1/1$0.5C ts=now",
                "#2 u y | ts=now",
                "= compaction",
                "| #1",
                "= compaction",
                "| #1",
            ])
            .shows(["#1", "= compaction", "| #3 a summary", "| #1"])
            .context("#3 #1")
            .spend("1 turn 1/1 $0.5C last 1/1"),
        case("a row that is stored again as a new one counts again")
            .append(a("x").used(charged(1, 1, 0.5)))
            .append(u("y"))
            .turn([kept(0).fresh()])
            .shows([
                "#1 a x | use=1/1$0.5C ts=now",
                "#2 u y | ts=now",
                "= compaction",
                "| #3 a x | use=1/1$0.5C",
            ])
            .context("#3")
            .live("1 turn 1/1 $0.5C last 1/1")
            .thread("2 turns 2/2 $1C last 1/1"),
        case("the last turn of a thread is the newest stored one, not the last in the context")
            .append(a("x").used(charged(1, 1, 0.5)))
            .append(u("y"))
            .turn([a("summary"), kept(0)])
            .usage(charged(7, 7, 0.5))
            .shows([
                "#1 a x | use=1/1$0.5C ts=now",
                "#2 u y | ts=now",
                "= compaction",
                "| #3 a summary | use=7/7$0.5C",
                "| #1",
            ])
            .context("#3 #1")
            .live("2 turns 8/8 $1C last 1/1")
            .thread("2 turns 8/8 $1C last 7/7"),
        case("the usages of all generations of a session are one sum")
            .turn([u("q"), a("one")])
            .usage(charged(1, 1, 0.5))
            .begin()
            .turn([a("two")])
            .usage(charged(2, 2, 0.5))
            .begin()
            .turn([a("three")])
            .usage(charged(4, 4, 0.5))
            .shows(["#1 u q", "#2 a one | use=1/1$0.5C"])
            .shows(["#3 a two | use=2/2$0.5C"])
            .shows(["#4 a three | use=4/4$0.5C"])
            .context("#4")
            .live("1 turn 4/4 $0.5C last 4/4")
            .thread("3 turns 7/7 $1.5C last 4/4"),
        case("the last turn of a thread is passed on where the newest generation counted none")
            .turn([u("q"), a("one")])
            .usage(charged(1, 1, 0.5).model("m").window(100))
            .begin()
            .turn([kept(1)])
            .shows(["#1 u q", "#2 a one | use=1/1$0.5C,window:100,model:m"])
            .shows(["#2"])
            .context("#2")
            .spend("1 turn 1/1 $0.5C last 1/1 model m window 100"),
    ]
}
