//! The older `.md` files: a header in a comment, then rows between comments.

use super::{headed, session_of};
use crate::interchange::emit::Emit;
use crate::interchange::fact::{Place, RepeatKey, RowFact};
use crate::interchange::quarantine::{BadClass, BadLine};
use crate::interchange::source::Source;
use crate::{Result, TranscriptMessage, TranscriptMeta};

/// How such a file begins.
pub(super) const HEAD: &str = "<!-- session_transcript";

const OPEN: &str = "<!--MSG role=\"";

const CLOSE: &str = "<!--/MSG-->";

/// The largest file that is read.
const MAX_BYTES: u64 = 1 << 30;

pub(super) fn read(source: &mut Source<'_>, emit: &mut Emit<'_>) -> Result<()> {
    let stem = source.stem();
    let bytes = source.whole(MAX_BYTES)?;
    let text = String::from_utf8_lossy(&bytes);
    let header = text
        .trim_start()
        .strip_prefix(HEAD)
        .and_then(|text| text.split_once("-->"));
    let Some((header, mut rest)) = header else {
        if !text.trim().is_empty() {
            let counts = source.counts_mut();
            counts.bad = 1;
            counts.bad_lines.push(BadLine {
                line: 1,
                offset: 0,
                length: bytes.len() as u64,
                class: BadClass::WrongShape,
            });
        }
        return Ok(());
    };
    let meta = meta_of(header);
    let session = session_of(&stem, &meta);
    let session = emit.session(headed(&stem, session, meta))?;
    source.counts_mut().records = 1;
    let lossy = matches!(text, std::borrow::Cow::Owned(_));
    source.counts_mut().lossy = u64::from(lossy);
    while let Some((_, begun)) = rest.split_once(OPEN) {
        let Some((role, body)) = begun.split_once("\"-->") else {
            break;
        };
        // A row without an end ends the file.
        let Some((said, behind)) = body.split_once(CLOSE) else {
            break;
        };
        rest = behind;
        let said = said.strip_prefix('\n').unwrap_or(said);
        let said = said.strip_suffix('\n').unwrap_or(said);
        let end = text.len() - rest.len();
        let begin = end - (begun.len() - behind.len());
        // Its place and its text name the row: files of this kind are not written any more.
        let own = text.get(begin..end).unwrap_or_default().as_bytes();
        let key = RepeatKey::of(&[stem.as_bytes(), &(end as u64).to_le_bytes(), own]);
        emit.row(RowFact {
            session,
            message: TranscriptMessage::new(role, said.replace("<!--\\/MSG-->", CLOSE)),
            uuid: None,
            ts: String::new(),
            iteration: None,
            place: Place {
                line: 0,
                offset: begin as u64,
                length: (end - begin) as u64,
                part: 0,
            },
            key,
            revises: None,
            cache_write: 0,
            lossy,
        })?;
        source.counts_mut().records += 1;
    }
    Ok(())
}

fn meta_of(header: &str) -> TranscriptMeta {
    let mut meta = TranscriptMeta::new("unknown")
        .with_created("")
        .with_updated("");
    for line in header.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        match key.trim() {
            "agent" => value.clone_into(&mut meta.agent_name),
            "dispatcher" => value.clone_into(&mut meta.dispatcher),
            "created" => value.clone_into(&mut meta.created),
            "updated" => value.clone_into(&mut meta.updated),
            "turn_count" => meta.turn_count = value.parse().unwrap_or(0),
            "input_tokens" => meta.input_tokens = value.parse().unwrap_or(0),
            "output_tokens" => meta.output_tokens = value.parse().unwrap_or(0),
            "cached_input_tokens" => meta.cached_input_tokens = value.parse().unwrap_or(0),
            "charged_usd" => {
                let cost = value.trim_start_matches('$').parse::<f64>();
                let cost = cost.ok().filter(|it| it.is_finite());
                meta.charged_amount_usd = cost.unwrap_or(0.0);
            }
            "thread_id" if !value.is_empty() => meta.thread_id = Some(value.to_owned()),
            _ => {}
        }
    }
    meta
}
