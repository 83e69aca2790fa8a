//! The derived fields of the display, and partials (contract sections 1.13 and 5).

use serde_json::json;

use crate::dsl::{Case, a, case, charged, half, kept, other, s, t, u, used};

const OLD_CALL: &str = r#"{"content":"x","tool_calls":[{"id":"c","name":"f","arguments":"{}"}],"reasoning_content":"deep"}"#;

pub fn cases() -> Vec<Case> {
    let mut cases = fields();
    cases.extend(partials());
    cases
}

fn fields() -> Vec<Case> {
    vec![
        case("rows of a turn have no time of their own, appended ones have that of the write")
            .turn([u("a"), a("b")])
            .append(u("c"))
            .shows(["#1 u a", "#2 a b", "#3 u c | ts=now"])
            .context("#1 #2 #3"),
        case("rows of a replacement have no time of their own")
            .append(u("a"))
            .replace([kept(0), a("b")])
            .shows(["#1 u a | ts=now", "= compaction", "| #1", "| #2 a b"])
            .context("#1 #2"),
        case("reasoning in the metadata comes first")
            .turn([other("assistant", OLD_CALL)
                .meta(json!({"reasoning_content": "noted"}))
                .used(used(1, 1).thinking("used"))])
            .shows([r#"#1 a x | use=1/1 why=noted calls=c meta={"reasoning_content":"noted"}"#])
            .context("#1")
            .spend("1 turn 1/1 $0 unpriced 1:1/1 last 1/1"),
        case("reasoning in the old string comes second")
            .turn([other("assistant", OLD_CALL)
                .meta(json!({"reasoning_content": 7}))
                .used(used(1, 1).thinking("used"))])
            .shows([r#"#1 a x | use=1/1 why=deep calls=c meta={"reasoning_content":7}"#])
            .context("#1")
            .spend("1 turn 1/1 $0 unpriced 1:1/1 last 1/1"),
        case("reasoning in the usage comes last")
            .turn([a("x").used(used(1, 1).thinking("used"))])
            .shows(["#1 a x | use=1/1 why=used"])
            .context("#1")
            .spend("1 turn 1/1 $0 unpriced 1:1/1 last 1/1"),
        case("the reasoning of an old string is gone when the row no longer means that string")
            .turn([other("assistant", OLD_CALL), u("y")])
            .turn([kept(0).says("z")])
            .shows([
                "#1 a x | why=deep calls=c",
                "#2 u y",
                "= compaction",
                "| #3 a z | calls=c",
            ])
            .context("#3"),
        case("the reasoning of an old string is part of a row that is retained")
            .turn([other("assistant", OLD_CALL), u("y")])
            .turn([kept(0)])
            .shows([
                "#1 a x | why=deep calls=c",
                "#2 u y",
                "= compaction",
                "| #1",
            ])
            .context("#1"),
        case("a failure is shown with its detail")
            .turn([t("out").fails("timed out")])
            .shows(["#1 t out | answers=c fails=timed out"])
            .context("#1"),
        case("a failure that did not fail reads back as none")
            .turn([t("out").did_not_fail()])
            .shows(["#1 t out | answers=c"])
            .context("#1"),
        case("a row with media is shown with its text and its parts")
            .turn([u("before [OH_IMAGE:http://i] after")])
            .shows(["#1 u before  after | parts=3"])
            .context("#1"),
        case("an image marker that is not closed is text")
            .turn([u("before [OH_IMAGE:http://i after")])
            .shows(["#1 u before [OH_IMAGE:http://i after"])
            .context("#1"),
        case("a well-formed background origin is lifted, by whichever call the row came")
            .turn([u("q").meta(json!({"background_origin": {"idempotency_key": "k1"}}))])
            .append(a("x").meta(json!({
                "background_origin": {"idempotency_key": "k2", "provenance": [1]},
            })))
            .shows(["#1 u q | from=k1:null", "#2 a x | ts=now from=k2:[1]"])
            .context("#1 #2"),
        case("a malformed background origin is metadata")
            .append(a("x").meta(json!({"background_origin": "k"})))
            .append(a("y").meta(json!({"background_origin": {"provenance": 1}})))
            .shows([
                r#"#1 a x | ts=now meta={"background_origin":"k"}"#,
                r#"#2 a y | ts=now meta={"background_origin":{"provenance":1}}"#,
            ])
            .context("#1 #2"),
        case("system rows and rows of the host's own roles are shown like others")
            .turn([s("rules"), other("narrator", "once"), other("", "")])
            .shows(["#1 s rules", "#2 narrator once", "#3  "])
            .context("#1 #2 #3"),
        case("a row that was compacted away is still shown where it was")
            .turn([u("a"), a("b")])
            .turn([a("summary")])
            .turn([kept(0), u("c")])
            .clear()
            .shows([
                "#1 u a",
                "#2 a b",
                "= compaction",
                "| #3 a summary",
                "#4 u c",
                "= compaction",
            ])
            .context(""),
    ]
}

fn partials() -> Vec<Case> {
    vec![
        case("a partial is an interrupted assistant row at the time of its write")
            .turn([u("q")])
            .interrupted(half("half an ans"), None)
            .shows(["#1 u q", "#2 a half an ans | interrupted=yes ts=now"])
            .context("#1"),
        case("a partial keeps its text as given")
            .turn([u("q")])
            .interrupted(half("  half\n"), None)
            .shows(["#1 u q", "#2 a   half\n | interrupted=yes ts=now"])
            .context("#1"),
        case("the reasoning of a partial is trimmed, and has its place in the metadata")
            .turn([u("q")])
            .interrupted(half("half").with_reasoning_content("\t because \n"), None)
            .shows([
                "#1 u q",
                r#"#2 a half | interrupted=yes ts=now why=because meta={"reasoning_content":"because"}"#,
            ])
            .context("#1"),
        case("blank reasoning of a partial is none")
            .turn([u("q")])
            .interrupted(half("half").with_reasoning_content(" \n"), None)
            .shows(["#1 u q", "#2 a half | interrupted=yes ts=now"])
            .context("#1"),
        case("a partial shows its step and its request")
            .turn([u("q")])
            .interrupted(half("half").with_iteration(3), Some("r"))
            .shows(["#1 u q", "#2 a half | interrupted=yes req=r step=3 ts=now"])
            .context("#1"),
        case("a partial without text is not stored, whatever it reasoned")
            .turn([u("q")])
            .interrupted(half("").with_reasoning_content("because"), Some("r"))
            .turn([kept(0), a("answer")])
            .partial(half("").with_reasoning_content("because"))
            .shows(["#1 u q", "#2 a answer"])
            .context("#1 #2"),
        case("a partial of white space is a text")
            .turn([u("q")])
            .interrupted(half(" "), None)
            .shows(["#1 u q", "#2 a   | interrupted=yes ts=now"])
            .context("#1"),
        case("a partial may be a transcript's first write")
            .turn([])
            .request("r")
            .partial(half("half"))
            .shows(["#1 a half | interrupted=yes req=r ts=now"])
            .context(""),
        case("the partial of a turn stands behind its rows and gets none of its usage")
            .turn([u("q"), a("one")])
            .request("r")
            .usage(charged(10, 5, 0.5).step(1))
            .partial(half("tw"))
            .shows([
                "#1 u q | req=r",
                "#2 a one | req=r use=10/5$0.5C,step:1 step=1",
                "#3 a tw | interrupted=yes req=r ts=now",
            ])
            .context("#1 #2")
            .spend("1 turn 10/5 $0.5C last 10/5"),
        case("partials stand in the order of their writes")
            .turn([u("q")])
            .interrupted(half("one"), None)
            .interrupted(half("two"), None)
            .turn([kept(0), a("answer")])
            .interrupted(half("three"), None)
            .shows([
                "#1 u q",
                "#2 a one | interrupted=yes ts=now",
                "#3 a two | interrupted=yes ts=now",
                "#4 a answer",
                "#5 a three | interrupted=yes ts=now",
            ])
            .context("#1 #4"),
        case("a row that is appended as interrupted is shown, and neither replayed nor counted")
            .append(u("q"))
            .append(a("half").used(charged(10, 5, 0.5)).cut())
            .shows([
                "#1 u q | ts=now",
                "#2 a half | interrupted=yes use=10/5$0.5C ts=now",
            ])
            .context("#1"),
        case("a partial after a clear leaves the context empty")
            .turn([u("q")])
            .clear()
            .interrupted(half("half"), None)
            .shows([
                "#1 u q",
                "= compaction",
                "#2 a half | interrupted=yes ts=now",
            ])
            .context(""),
    ]
}
