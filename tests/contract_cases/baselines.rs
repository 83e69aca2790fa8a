//! First writes, extensions and the baseline check (contract section 4, steps 1 to 5 and 7).

use serde_json::json;
use transcript_redb::ErrorKind;

use crate::dsl::{Case, a, calls, case, half, kept, other, s, t, u};

/// Two strings that say the same, as older hosts wrote them.
const OLD_CALL: &str = r#"{"content":"x","tool_calls":[{"id":"c","name":"f","arguments":"{}"}]}"#;
const OLD_CALL_SPACED: &str =
    r#"{"content": "x","tool_calls":[{"id":"c","name":"f","arguments":"{}"}]}"#;

pub fn cases() -> Vec<Case> {
    vec![
        case("a first write stores all of next as plain rows")
            .turn([s("rules"), u("hi"), a("hello")])
            .shows(["#1 s rules", "#2 u hi", "#3 a hello"])
            .context("#1 #2 #3"),
        case("if the transcript is unwritten, prev is not checked")
            .turn([u("hi")])
            .on([u("something else"), a("entirely")])
            .shows(["#1 u hi"])
            .context("#1"),
        case("a first write without rows makes the transcript exist")
            .turn([])
            .shows([])
            .context(""),
        case("on a first write that is no successor's all rows are new, also equal ones")
            .turn([u("x").claims("r"), u("x").claims("r")])
            .shows(["#1 u x | req=r", "#2 u x | req=r"])
            .context("#1 #2"),
        case("an extension stores next[common..] and nothing else")
            .turn([u("hi"), a("hello")])
            .turn([kept(0), kept(1), u("more"), a("sure")])
            .shows(["#1 u hi", "#2 a hello", "#3 u more", "#4 a sure"])
            .context("#1 #2 #3 #4"),
        case("an extension by zero rows gives no record")
            .turn([u("hi")])
            .turn([kept(0)])
            .shows(["#1 u hi"])
            .context("#1"),
        case("rows that the host built anew extend as well as rows that it read")
            .turn([u("hi")])
            .turn([u("hi"), a("hello")])
            .on([u("hi")])
            .shows(["#1 u hi", "#2 a hello"])
            .context("#1 #2"),
        case("an extension leaves stored rows alone, whatever the caller's copies carry")
            .turn([u("hi"), a("hello")])
            .request("r1")
            .turn([
                kept(0).meta(json!({"mine": 1})).claims("mine").breaks(&[1]),
                a("hello").req("mine"),
                u("more"),
            ])
            .request("r2")
            .shows([
                "#1 u hi | req=r1",
                "#2 a hello | req=r1",
                "#3 u more | req=r2",
            ])
            .context("#1 #2 #3"),
        case("in an extension a row that was read is stored again behind the stored ones")
            .turn([u("x")])
            .turn([kept(0), kept(0)])
            .shows(["#1 u x", "#2 u x"])
            .context("#1 #2"),
        case("a baseline that is too short is stale")
            .turn([u("hi"), a("hello")])
            .turn([kept(0), u("more")])
            .on([kept(0)])
            .refused(ErrorKind::Stale)
            .shows(["#1 u hi", "#2 a hello"])
            .context("#1 #2"),
        case("an empty baseline of a written transcript is stale")
            .turn([u("hi")])
            .turn([u("more")])
            .on([])
            .refused(ErrorKind::Stale)
            .shows(["#1 u hi"])
            .context("#1"),
        case("a baseline that is too long is stale")
            .turn([u("hi")])
            .turn([kept(0), u("not stored"), u("more")])
            .on([kept(0), u("not stored")])
            .refused(ErrorKind::Stale)
            .shows(["#1 u hi"])
            .context("#1"),
        case("a baseline with another text is stale")
            .turn([u("hi")])
            .turn([kept(0), a("hello")])
            .on([u("HI")])
            .refused(ErrorKind::Stale)
            .shows(["#1 u hi"])
            .context("#1"),
        case("a baseline in another order is stale")
            .turn([u("hi"), u("there")])
            .turn([kept(0), kept(1), a("hello")])
            .on([kept(1), kept(0)])
            .refused(ErrorKind::Stale)
            .shows(["#1 u hi", "#2 u there"])
            .context("#1 #2"),
        case("a stale writer never becomes a compaction")
            .turn([u("hi")])
            .append(a("newer"))
            .turn([a("summary")])
            .on([u("hi")])
            .refused(ErrorKind::Stale)
            .shows(["#1 u hi", "#2 a newer | ts=now"])
            .context("#1 #2"),
        case("a stale writer is refused even when its next is what is stored")
            .turn([u("hi")])
            .append(a("newer"))
            .turn([kept(0), kept(1)])
            .on([u("hi")])
            .refused(ErrorKind::Stale)
            .shows(["#1 u hi", "#2 a newer | ts=now"])
            .context("#1 #2"),
        case("a stale turn records no tools, no meta and no partial")
            .turn([u("hi")])
            .with_tools(json!(["old"]))
            .turn([u("more")])
            .on([])
            .with_tools(json!(["new"]))
            .partial(half("ha"))
            .refused(ErrorKind::Stale)
            .shows(["#1 u hi"])
            .context("#1")
            .tools(json!(["old"])),
        case(
            "metadata, request id, breakpoints, failure and usage are no part of a row's identity",
        )
        .turn([u("hi").meta(json!(1)).breaks(&[2]), t("out").fails("late")])
        .request("r")
        .turn([u("hi"), t("out"), a("hello")])
        .on([u("hi").req("other"), t("out").meta(json!({}))])
        .shows([
            "#1 u hi | req=r meta=1 breaks=[2]",
            "#2 t out | req=r answers=c fails=late",
            "#3 a hello",
        ])
        .context("#1 #2 #3"),
        case("the id is part of a row's identity")
            .turn([u("hi").id("m")])
            .turn([u("hi"), a("hello")])
            .on([u("hi")])
            .refused(ErrorKind::Stale)
            .shows(["#1 u hi | id=m"])
            .context("#1"),
        case("the role is part of a row's identity")
            .turn([u("hi")])
            .turn([a("hi"), a("hello")])
            .on([a("hi")])
            .refused(ErrorKind::Stale)
            .shows(["#1 u hi"])
            .context("#1"),
        case("the call that a row answers is part of its identity")
            .turn([t("out")])
            .turn([kept(0), a("done")])
            .on([other("tool", "out")])
            .refused(ErrorKind::Stale)
            .shows(["#1 t out | answers=c"])
            .context("#1"),
        case("the calls of a row are part of its identity")
            .turn([calls("x")])
            .turn([kept(0), t("out")])
            .on([a("x")])
            .refused(ErrorKind::Stale)
            .shows(["#1 a x | calls=c"])
            .context("#1"),
        case("a row that was packed into text is the typed row that it means")
            .turn([calls("x")])
            .turn([other("assistant", OLD_CALL), t("out")])
            .on([other("assistant", OLD_CALL)])
            .shows(["#1 a x | calls=c", "#2 t out | answers=c"])
            .context("#1 #2"),
        case("a typed row is the packed row that was stored")
            .turn([other("assistant", OLD_CALL)])
            .turn([calls("x"), t("out")])
            .on([calls("x")])
            .shows(["#1 a x | calls=c", "#2 t out | answers=c"])
            .context("#1 #2"),
        case("two packed rows of different strings are different rows")
            .turn([other("assistant", OLD_CALL)])
            .turn([kept(0), t("out")])
            .on([other("assistant", OLD_CALL_SPACED)])
            .refused(ErrorKind::Stale)
            .shows(["#1 a x | calls=c"])
            .context("#1"),
        case("the parts of a row are part of its identity")
            .turn([u("see [OH_IMAGE:a]")])
            .turn([kept(0), a("nice")])
            .on([u("see [OH_IMAGE:b]")])
            .refused(ErrorKind::Stale)
            .shows(["#1 u see  | parts=2"])
            .context("#1"),
        case("append lands behind what is stored and has the time of its write")
            .turn([u("hi")])
            .append(a("hello"))
            .append(u("more"))
            .shows(["#1 u hi", "#2 a hello | ts=now", "#3 u more | ts=now"])
            .context("#1 #2 #3"),
        case("append can be a first write")
            .append(u("hi"))
            .shows(["#1 u hi | ts=now"])
            .context("#1"),
        case("append keeps the row's request id as given, claimed or not")
            .append(u("a").req("r1"))
            .append(u("b").claims("r2"))
            .append(u("c"))
            .shows([
                "#1 u a | req=r1 ts=now",
                "#2 u b | req=r2 ts=now",
                "#3 u c | ts=now",
            ])
            .context("#1 #2 #3"),
        case("append retains nothing: a row that was read is stored again")
            .append(u("x"))
            .append(kept(0))
            .shows(["#1 u x | ts=now", "#2 u x | ts=now"])
            .context("#1 #2"),
        case("tools are recorded by the turn that brings them, the last one wins")
            .turn([u("hi")])
            .with_tools(json!([{"name": "a"}]))
            .turn([kept(0), a("hello")])
            .with_tools(json!({"name": "b"}))
            .shows(["#1 u hi", "#2 a hello"])
            .context("#1 #2")
            .tools(json!({"name": "b"})),
        case("a turn without tools leaves the last record in force")
            .turn([u("hi")])
            .with_tools(json!(["a"]))
            .turn([kept(0), a("hello")])
            .append(u("more"))
            .turn([a("summary")])
            .shows([
                "#1 u hi",
                "#2 a hello",
                "#3 u more | ts=now",
                "= compaction",
                "| #4 a summary",
            ])
            .context("#4")
            .tools(json!(["a"])),
        case("a turn that changes nothing records its tools")
            .turn([u("hi")])
            .turn([kept(0)])
            .with_tools(json!(["a"]))
            .shows(["#1 u hi"])
            .context("#1")
            .tools(json!(["a"])),
        case("a partial does not make a baseline stale")
            .turn([u("hi")])
            .interrupted(half("hel"), None)
            .turn([u("hi"), a("hello")])
            .on([u("hi")])
            .shows(["#1 u hi", "#2 a hel | interrupted=yes ts=now", "#3 a hello"])
            .context("#1 #3"),
        case("after a clear the baseline is the empty context")
            .turn([u("hi")])
            .clear()
            .turn([u("again")])
            .on([])
            .shows(["#1 u hi", "= compaction", "#2 u again"])
            .context("#2"),
        case("after a clear the rows before it are no baseline")
            .turn([u("hi")])
            .remember()
            .clear()
            .turn([u("hi"), u("again")])
            .on([u("hi")])
            .refused(ErrorKind::Stale)
            .shows(["#1 u hi", "= compaction"])
            .context(""),
    ]
}
