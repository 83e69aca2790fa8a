//! What is in a record: a header and a body, both bincode, in an [`envelope`](super::envelope).
//!
//! What is open-ended (metadata, extra content, tool declarations) stands in the body as JSON text.

use bincode::{BorrowDecode, Decode, Encode};
use serde::Deserialize as _;
use serde_json::Value;
use uuid::Uuid;

use super::binary::{self, Noting, Text};
use super::envelope::{self, Contents, Encoded, Envelope, Packing};
use super::hash::RowHashes;
use super::head::{Range, source_code, source_from_code};
use crate::replay::{StoredRow, record_time};
use crate::transcript::LegacyText;
use crate::{
    Error, MessageUsage, Result, ToolFailure, TranscriptMediaRef, TranscriptMessage,
    TranscriptPart, TranscriptToolCall, TurnUsage,
};

/// What a record of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) enum Kind {
    /// A row of the context.
    Row,
    /// A row that a compaction stored; the display shows it inside the compaction's marker.
    MarkerRow,
    /// The text of an interrupted turn: in the log and the display, in no context.
    Partial,
    /// An interrupted row that a compaction stored.
    MarkerPartial,
    /// A compaction, a `replace` or a `clear`.
    Marker,
    /// Usage that belongs to no row.
    Usage,
    /// Tool declarations.
    Tools,
    /// The end of a generation.
    Seal,
    /// The rows that a successor generation kept, as references, among the new rows of its first write.
    Retained,
}

impl Kind {
    fn is_of_a_row(self) -> bool {
        matches!(
            self,
            Self::Row | Self::MarkerRow | Self::Partial | Self::MarkerPartial
        )
    }
}

/// Where a record belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) transcript: u64,
    pub(super) seq: u64,
    pub(super) uuid: u128,
    /// Write time, microseconds since the Unix epoch.
    pub(super) at: i64,
}

#[derive(Encode, Decode)]
struct Header {
    kind: Kind,
    transcript: u64,
    seq: u64,
    uuid: [u8; 16],
    at: i64,
}

#[derive(Encode, Decode)]
struct HashesV0 {
    identity: [u8; 16],
    whole: [u8; 16],
    legacy: Option<[u8; 16]>,
}

#[derive(Encode, BorrowDecode)]
struct RowV0<'a> {
    /// Whether the write time is shown as the row's time when it has none of its own.
    shows_write_time: bool,
    id: Option<&'a str>,
    role: &'a str,
    content: Text<'a>,
    tool_calls: Vec<CallV0<'a>>,
    tool_call_id: Option<&'a str>,
    parts: Option<Vec<PartV0<'a>>>,
    legacy: Option<&'a str>,
    extra_metadata: Option<&'a str>,
    cache_breakpoints: Vec<u64>,
    usage: Option<UsageV0<'a>>,
    request_id: Option<&'a str>,
    failure: Option<FailureV0<'a>>,
    iteration: Option<u32>,
    ts: Option<&'a str>,
    revises: Option<[u8; 16]>,
}

#[derive(Encode, BorrowDecode)]
struct FailureV0<'a> {
    detail: Option<&'a str>,
}

#[derive(Encode, BorrowDecode)]
struct CallV0<'a> {
    id: &'a str,
    name: &'a str,
    arguments: &'a str,
    extra_content: Option<JsonV0<'a>>,
}

/// JSON text, borrowed when it is read and owned when it is written.
struct JsonV0<'a>(std::borrow::Cow<'a, str>);

impl Encode for JsonV0<'_> {
    fn encode<E: bincode::enc::Encoder>(
        &self,
        encoder: &mut E,
    ) -> std::result::Result<(), bincode::error::EncodeError> {
        self.0.as_ref().encode(encoder)
    }
}

impl<'de, C> BorrowDecode<'de, C> for JsonV0<'de> {
    fn borrow_decode<D: bincode::de::BorrowDecoder<'de, Context = C>>(
        decoder: &mut D,
    ) -> std::result::Result<Self, bincode::error::DecodeError> {
        Ok(Self(<&'de str>::borrow_decode(decoder)?.into()))
    }
}

#[derive(Encode, BorrowDecode)]
enum PartV0<'a> {
    Text {
        text: &'a str,
    },
    Image {
        url: &'a str,
    },
    Audio {
        source: MediaV0<'a>,
        mime_type: &'a str,
    },
    Video {
        source: MediaV0<'a>,
        mime_type: &'a str,
    },
    Document {
        source: MediaV0<'a>,
        mime_type: &'a str,
    },
}

#[derive(Encode, BorrowDecode)]
enum MediaV0<'a> {
    Path(&'a str),
    Url(&'a str),
}

#[derive(Encode, BorrowDecode)]
struct UsageV0<'a> {
    provider: &'a str,
    model: &'a str,
    input: u64,
    output: u64,
    cached_input: u64,
    context_window: u64,
    cost_usd: f64,
    last_call_input: u64,
    last_call_output: u64,
    cost_source: u8,
    ts: &'a str,
    reasoning_content: Option<&'a str>,
    tool_calls: Vec<CallV0<'a>>,
    iteration: u32,
}

#[derive(Encode, BorrowDecode)]
struct MarkerV0<'a> {
    replacement: Vec<Range>,
    request_id: Option<&'a str>,
    metadata: Option<&'a str>,
}

#[derive(Encode, BorrowDecode)]
struct UsageRecordV0<'a> {
    usage: UsageV0<'a>,
    request_id: Option<&'a str>,
}

/// What an import adds to a usage record. Records of before there was any of it end without.
#[derive(Default, Encode, BorrowDecode)]
struct ToldV0<'a> {
    cache_write: u64,
    original: Option<&'a str>,
}

#[derive(Encode, BorrowDecode)]
struct SealV0<'a> {
    request_id: Option<&'a str>,
    metadata: Option<&'a str>,
}

/// A row as the planner hands it over.
#[derive(Debug)]
pub(super) struct RowRef<'a> {
    pub(super) message: &'a TranscriptMessage,
    pub(super) hashes: RowHashes,
    pub(super) iteration: Option<u32>,
    pub(super) ts: Option<&'a str>,
    pub(super) shows_write_time: bool,
    pub(super) revises: Option<Uuid>,
}

/// What stands in a record behind its header.
#[derive(Debug)]
pub(super) enum Body {
    /// Also for [`Kind::MarkerRow`] and [`Kind::Partial`].
    Row(Box<StoredRow>),
    Marker(Marker),
    Usage(Box<UsageBody>),
    Tools(Value),
    Seal(Seal),
    Retained(Vec<Range>),
}

/// A compaction.
#[derive(Clone, Debug, Default)]
pub(super) struct Marker {
    pub(super) replacement: Vec<Range>,
    pub(super) request_id: Option<String>,
    pub(super) metadata: Option<Value>,
}

/// Usage without a row.
#[derive(Clone, Debug, Default)]
pub(super) struct UsageBody {
    pub(super) usage: TurnUsage,
    pub(super) request_id: Option<String>,
    /// Tokens of the input that were written to a cache, where an import told.
    pub(super) cache_write: u64,
    /// The counters as the source has them, JSON text.
    pub(super) original: Option<String>,
}

/// The end of a generation, with what its host knew of the compaction that ended it.
#[derive(Clone, Debug, Default)]
pub(super) struct Seal {
    pub(super) request_id: Option<String>,
    pub(super) metadata: Option<Value>,
}

/// A row or partial that is encoded and not in its envelope: it needs the message no more.
pub(super) struct Plain {
    out: Noting,
    /// Bytes that stay inline.
    head: usize,
}

impl Plain {
    /// Puts it into its envelope.
    pub(super) fn seal(self, packing: Packing<'_>) -> Result<Encoded> {
        envelope::seal(self.out, self.head, packing)
    }
}

/// Encodes a row or partial.
pub(super) fn encode_row(
    packing: Packing<'_>,
    kind: Kind,
    address: Address,
    row: &RowRef<'_>,
) -> Result<Encoded> {
    plain_row(kind, address, row)?.seal(packing)
}

/// Encodes a row or partial that may be large, so that its message can be dropped before it is packed.
pub(super) fn plain_row(kind: Kind, address: Address, row: &RowRef<'_>) -> Result<Plain> {
    let mut out = begin(kind, address, row.message.content.len())?;
    let RowHashes {
        identity,
        legacy,
        whole,
    } = row.hashes;
    out.encode(&HashesV0 {
        identity: identity.to_le_bytes(),
        whole: whole.to_le_bytes(),
        legacy: legacy.map(u128::to_le_bytes),
    })?;
    // Planning compares hashes and must find them without the content.
    let head = out.bytes.len();
    let message = row.message;
    let metadata = message.extra_metadata.as_ref().map(Value::to_string);
    out.encode(&RowV0 {
        shows_write_time: row.shows_write_time,
        id: message.id.as_deref(),
        role: &message.role,
        content: Text(&message.content),
        tool_calls: calls(&message.tool_calls),
        tool_call_id: message.tool_call_id.as_deref(),
        parts: message
            .parts
            .as_ref()
            .map(|parts| parts.iter().map(part).collect()),
        legacy: message.live_legacy(),
        extra_metadata: metadata.as_deref(),
        cache_breakpoints: message
            .cache_breakpoints
            .iter()
            .map(|at| *at as u64)
            .collect(),
        usage: message.turn_usage.as_ref().map(usage),
        request_id: message.request_id.as_deref(),
        failure: message
            .tool_failure
            .as_ref()
            .filter(|failure| failure.failed)
            .map(|failure| FailureV0 {
                detail: failure.detail.as_deref(),
            }),
        iteration: row.iteration,
        ts: row.ts,
        revises: row.revises.map(Uuid::into_bytes),
    })?;
    Ok(Plain { out, head })
}

/// Encodes a compaction.
pub(super) fn encode_marker(
    packing: Packing<'_>,
    address: Address,
    marker: &Marker,
) -> Result<Encoded> {
    let metadata = marker.metadata.as_ref().map(Value::to_string);
    let mut out = begin(Kind::Marker, address, marker.replacement.len() * 8)?;
    let head = out.bytes.len();
    out.encode(&MarkerV0 {
        replacement: marker.replacement.clone(),
        request_id: marker.request_id.as_deref(),
        metadata: metadata.as_deref(),
    })?;
    envelope::seal(out, head, packing)
}

/// Encodes usage that belongs to no row.
pub(super) fn encode_usage(
    packing: Packing<'_>,
    address: Address,
    body: &UsageBody,
) -> Result<Encoded> {
    let mut out = begin(Kind::Usage, address, 128)?;
    let head = out.bytes.len();
    out.encode(&UsageRecordV0 {
        usage: usage(&body.usage),
        request_id: body.request_id.as_deref(),
    })?;
    out.encode(&ToldV0 {
        cache_write: body.cache_write,
        original: body.original.as_deref(),
    })?;
    envelope::seal(out, head, packing)
}

/// Appends the usage of a call that no record tells of yet. Only [`take_usage`] reads it.
pub(super) fn put_usage(
    of: &TurnUsage,
    cache_write: u64,
    original: Option<&str>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let told = ToldV0 {
        cache_write,
        original,
    };
    binary::encode_into(&(usage(of), told), out)
}

/// Reads what [`put_usage`] wrote, and answers what stands behind it.
pub(super) fn take_usage(bytes: &[u8]) -> Result<(UsageBody, &[u8])> {
    let ((usage, told), rest): ((UsageV0<'_>, ToldV0<'_>), _) =
        binary::decode_prefix(bytes, "a usage")?;
    let body = UsageBody {
        usage: owned_usage(usage)?,
        request_id: None,
        cache_write: told.cache_write,
        original: told.original.map(str::to_owned),
    };
    Ok((body, rest))
}

/// Encodes tool declarations.
pub(super) fn encode_tools(
    packing: Packing<'_>,
    address: Address,
    tools: &Value,
) -> Result<Encoded> {
    let text = tools.to_string();
    let mut out = begin(Kind::Tools, address, text.len())?;
    let head = out.bytes.len();
    out.encode(&text.as_str())?;
    envelope::seal(out, head, packing)
}

/// Encodes the end of a generation.
pub(super) fn encode_seal(packing: Packing<'_>, address: Address, seal: &Seal) -> Result<Encoded> {
    let metadata = seal.metadata.as_ref().map(Value::to_string);
    let mut out = begin(Kind::Seal, address, 64)?;
    let head = out.bytes.len();
    out.encode(&SealV0 {
        request_id: seal.request_id.as_deref(),
        metadata: metadata.as_deref(),
    })?;
    envelope::seal(out, head, packing)
}

/// Encodes the first context of a successor: the ranges of kept and new rows, in order.
pub(super) fn encode_retained(
    packing: Packing<'_>,
    address: Address,
    ranges: &[Range],
) -> Result<Encoded> {
    let mut out = begin(Kind::Retained, address, ranges.len() * 8)?;
    let head = out.bytes.len();
    out.encode(&ranges.to_vec())?;
    envelope::seal(out, head, packing)
}

fn begin(kind: Kind, address: Address, body: usize) -> Result<Noting> {
    let mut out = envelope::begin(160 + body);
    out.encode(&Header {
        kind,
        transcript: address.transcript,
        seq: address.seq,
        uuid: address.uuid.to_be_bytes(),
        at: address.at,
    })?;
    Ok(out)
}

/// A record whose checksum holds, not decoded yet.
pub(super) struct Opened<'a> {
    pub(super) kind: Kind,
    pub(super) address: Address,
    position: u64,
    envelope: Envelope<'a>,
    /// Bytes of the header.
    header: usize,
    contents: &'a dyn Contents,
}

/// Checks a record and reads its header. `position` only serves the error.
pub(super) fn open<'a>(
    bytes: &'a [u8],
    position: u64,
    contents: &'a dyn Contents,
) -> Result<Opened<'a>> {
    let at = |reason: &str| damaged("a record", &format!("log position {position}: {reason}"));
    let envelope = Envelope::open(bytes, contents).map_err(|error| match error {
        Error::Corrupted { at: reason, .. } => at(&reason),
        error => error,
    })?;
    let (header, body): (Header, _) = binary::decode_prefix(&envelope.inline, "a record")
        .map_err(|_| at("its header does not parse"))?;
    Ok(Opened {
        kind: header.kind,
        address: Address {
            transcript: header.transcript,
            seq: header.seq,
            uuid: u128::from_be_bytes(header.uuid),
            at: header.at,
        },
        position,
        header: envelope.inline.len() - body.len(),
        envelope,
        contents,
    })
}

impl Opened<'_> {
    /// Whether the record is a row of a context.
    pub(super) fn is_row(&self) -> bool {
        matches!(self.kind, Kind::Row | Kind::MarkerRow)
    }

    fn damaged(&self) -> Error {
        damaged(
            "a record",
            &format!("log position {}: its body does not parse", self.position),
        )
    }

    /// The hashes of a row, without decoding it.
    pub(super) fn hashes(&self) -> Result<RowHashes> {
        let body = self.envelope.inline.get(self.header..).unwrap_or_default();
        let (hashes, _): (HashesV0, _) =
            binary::decode_prefix(body, "a record").map_err(|_| self.damaged())?;
        Ok(RowHashes {
            identity: u128::from_le_bytes(hashes.identity),
            whole: u128::from_le_bytes(hashes.whole),
            legacy: hashes.legacy.map(u128::from_le_bytes),
        })
    }

    /// Decodes the body.
    pub(super) fn body(&self) -> Result<Body> {
        let mut room = self.contents.room().borrow_mut();
        let whole = self.envelope.whole(self.contents, &mut room)?;
        let body = whole.get(self.header..).unwrap_or_default();
        self.parse(body).map_err(|_| self.damaged())
    }

    /// Decodes the row of a record that is one.
    pub(super) fn row(&self) -> Result<StoredRow> {
        if !self.kind.is_of_a_row() {
            return Err(self.damaged());
        }
        let mut room = self.contents.room().borrow_mut();
        let whole = self.envelope.whole(self.contents, &mut room)?;
        let body = whole.get(self.header..).unwrap_or_default();
        self.parse_row(body).map_err(|_| self.damaged())
    }

    fn parse_row(&self, body: &[u8]) -> Result<StoredRow> {
        const WHAT: &str = "a record";
        let (_, rest): (HashesV0, _) = binary::decode_prefix(body, WHAT)?;
        self.stored_row(binary::decode_all(rest, WHAT)?)
    }

    fn parse(&self, body: &[u8]) -> Result<Body> {
        const WHAT: &str = "a record";
        Ok(match self.kind {
            Kind::Row | Kind::MarkerRow | Kind::Partial | Kind::MarkerPartial => {
                Body::Row(Box::new(self.parse_row(body)?))
            }
            Kind::Marker => {
                let marker: MarkerV0<'_> = binary::decode_all(body, WHAT)?;
                Body::Marker(Marker {
                    replacement: marker.replacement,
                    request_id: marker.request_id.map(str::to_owned),
                    metadata: optional_json(marker.metadata)?,
                })
            }
            Kind::Usage => {
                let (record, told): (UsageRecordV0<'_>, ToldV0<'_>) =
                    match binary::decode_all(body, WHAT) {
                        Ok(record) => (record, ToldV0::default()),
                        Err(_) => binary::decode_all(body, WHAT)?,
                    };
                Body::Usage(Box::new(UsageBody {
                    usage: owned_usage(record.usage)?,
                    request_id: record.request_id.map(str::to_owned),
                    cache_write: told.cache_write,
                    original: told.original.map(str::to_owned),
                }))
            }
            Kind::Tools => Body::Tools(json(binary::decode_all::<&str>(body, WHAT)?)?),
            Kind::Seal => {
                let seal: SealV0<'_> = binary::decode_all(body, WHAT)?;
                Body::Seal(Seal {
                    request_id: seal.request_id.map(str::to_owned),
                    metadata: optional_json(seal.metadata)?,
                })
            }
            Kind::Retained => Body::Retained(binary::decode_all(body, WHAT)?),
        })
    }

    fn stored_row(&self, row: RowV0<'_>) -> Result<StoredRow> {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Ok(StoredRow {
            uuid: Uuid::from_u128(self.address.uuid),
            iteration: row.iteration,
            ts: owned(row.ts),
            written: row.shows_write_time.then(|| record_time(self.address.at)),
            revises: row.revises.map(Uuid::from_bytes),
            message: TranscriptMessage {
                id: owned(row.id),
                role: row.role.to_owned(),
                content: row.content.0.to_owned(),
                tool_calls: owned_calls(row.tool_calls)?,
                tool_call_id: owned(row.tool_call_id),
                parts: row
                    .parts
                    .map(|parts| parts.into_iter().map(owned_part).collect()),
                legacy: LegacyText::from_option(owned(row.legacy)),
                extra_metadata: optional_json(row.extra_metadata)?,
                cache_breakpoints: row
                    .cache_breakpoints
                    .into_iter()
                    .map(super::head::to_usize)
                    .collect(),
                turn_usage: row.usage.map(owned_usage).transpose()?,
                request_id: owned(row.request_id),
                preserve_request_id: true,
                interrupted: matches!(self.kind, Kind::Partial | Kind::MarkerPartial),
                tool_failure: row.failure.map(|failure| ToolFailure {
                    failed: true,
                    detail: owned(failure.detail),
                }),
            },
        })
    }
}

fn damaged(what: &str, at: &str) -> Error {
    Error::Corrupted {
        what: what.to_owned(),
        at: at.to_owned(),
    }
}

/// Parses JSON that was accepted at a write. Nesting was limited there, so the parser's own limit, which is one level
/// stricter, is off; the checksum vouches for the rest.
pub(super) fn json(text: &str) -> Result<Value> {
    let mut parser = serde_json::Deserializer::from_str(text);
    parser.disable_recursion_limit();
    Value::deserialize(&mut parser).map_err(|_| damaged("a record", "its JSON does not parse"))
}

fn optional_json(text: Option<&str>) -> Result<Option<Value>> {
    text.map(json).transpose()
}

fn calls(calls: &[TranscriptToolCall]) -> Vec<CallV0<'_>> {
    calls
        .iter()
        .map(|call| CallV0 {
            id: &call.id,
            name: &call.name,
            arguments: &call.arguments,
            extra_content: call
                .extra_content
                .as_ref()
                .map(|value| JsonV0(value.to_string().into())),
        })
        .collect()
}

fn owned_calls(calls: Vec<CallV0<'_>>) -> Result<Vec<TranscriptToolCall>> {
    calls
        .into_iter()
        .map(|call| {
            Ok(TranscriptToolCall {
                id: call.id.to_owned(),
                name: call.name.to_owned(),
                arguments: call.arguments.to_owned(),
                extra_content: call.extra_content.map(|text| json(&text.0)).transpose()?,
            })
        })
        .collect()
}

fn part(part: &TranscriptPart) -> PartV0<'_> {
    match part {
        TranscriptPart::Text { text } => PartV0::Text { text },
        TranscriptPart::Image { url } => PartV0::Image { url },
        TranscriptPart::Audio { source, mime_type } => PartV0::Audio {
            source: media(source),
            mime_type,
        },
        TranscriptPart::Video { source, mime_type } => PartV0::Video {
            source: media(source),
            mime_type,
        },
        TranscriptPart::Document { source, mime_type } => PartV0::Document {
            source: media(source),
            mime_type,
        },
    }
}

fn media(source: &TranscriptMediaRef) -> MediaV0<'_> {
    match source {
        TranscriptMediaRef::Path { path } => MediaV0::Path(path),
        TranscriptMediaRef::Url { url } => MediaV0::Url(url),
    }
}

fn owned_part(part: PartV0<'_>) -> TranscriptPart {
    match part {
        PartV0::Text { text } => TranscriptPart::Text {
            text: text.to_owned(),
        },
        PartV0::Image { url } => TranscriptPart::Image {
            url: url.to_owned(),
        },
        PartV0::Audio { source, mime_type } => TranscriptPart::Audio {
            source: owned_media(&source),
            mime_type: mime_type.to_owned(),
        },
        PartV0::Video { source, mime_type } => TranscriptPart::Video {
            source: owned_media(&source),
            mime_type: mime_type.to_owned(),
        },
        PartV0::Document { source, mime_type } => TranscriptPart::Document {
            source: owned_media(&source),
            mime_type: mime_type.to_owned(),
        },
    }
}

fn owned_media(source: &MediaV0<'_>) -> TranscriptMediaRef {
    match *source {
        MediaV0::Path(path) => TranscriptMediaRef::Path {
            path: path.to_owned(),
        },
        MediaV0::Url(url) => TranscriptMediaRef::Url {
            url: url.to_owned(),
        },
    }
}

fn usage(turn: &TurnUsage) -> UsageV0<'_> {
    UsageV0 {
        provider: &turn.provider,
        model: &turn.model,
        input: turn.usage.input,
        output: turn.usage.output,
        cached_input: turn.usage.cached_input,
        context_window: turn.usage.context_window,
        cost_usd: turn.usage.cost_usd,
        last_call_input: turn.usage.last_call_input,
        last_call_output: turn.usage.last_call_output,
        cost_source: source_code(turn.usage.cost_source),
        ts: &turn.ts,
        reasoning_content: turn.reasoning_content.as_deref(),
        tool_calls: calls(&turn.tool_calls),
        iteration: turn.iteration,
    }
}

fn owned_usage(usage: UsageV0<'_>) -> Result<TurnUsage> {
    Ok(TurnUsage {
        provider: usage.provider.to_owned(),
        model: usage.model.to_owned(),
        usage: MessageUsage {
            input: usage.input,
            output: usage.output,
            cached_input: usage.cached_input,
            context_window: usage.context_window,
            cost_usd: usage.cost_usd,
            last_call_input: usage.last_call_input,
            last_call_output: usage.last_call_output,
            cost_source: source_from_code(usage.cost_source),
        },
        ts: usage.ts.to_owned(),
        reasoning_content: usage.reasoning_content.map(str::to_owned),
        tool_calls: owned_calls(usage.tool_calls)?,
        iteration: usage.iteration,
    })
}
