//! An invented price list: what a model costs and who says so.

use transcript_redb::{MessageUsage, TranscriptMessage, UsageCostSource};

/// One model of the list.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    pub provider: &'static str,
    pub name: &'static str,
    context_window: u64,
    /// USD for a million tokens of input and output; cached input costs a tenth.
    price: (f64, f64),
    source: UsageCostSource,
}

/// `Charged` as if the provider reported the bill, `Estimated` as if from list rates, `Unknown` for a model that
/// nobody has a price for.
const MODELS: [Model; 6] = [
    Model {
        provider: "fjord",
        name: "fjord-large-3",
        context_window: 200_000,
        price: (3.0, 15.0),
        source: UsageCostSource::Charged,
    },
    Model {
        provider: "lumen",
        name: "lumen-large",
        context_window: 128_000,
        price: (2.5, 10.0),
        source: UsageCostSource::Estimated,
    },
    Model {
        provider: "local",
        name: "kestrel-8b",
        context_window: 32_768,
        price: (0.0, 0.0),
        source: UsageCostSource::Unknown,
    },
    Model {
        provider: "lumen",
        name: "lumen-code-mini",
        context_window: 128_000,
        price: (0.15, 0.6),
        source: UsageCostSource::Estimated,
    },
    Model {
        provider: "fjord",
        name: "fjord-vision-1",
        context_window: 200_000,
        price: (5.0, 20.0),
        source: UsageCostSource::Charged,
    },
    Model {
        provider: "fjord",
        name: "fjord-small-2",
        context_window: 200_000,
        price: (0.25, 1.25),
        source: UsageCostSource::Charged,
    },
];

/// What a model that is not on the list costs: nobody knows.
const UNLISTED: Model = Model {
    provider: "",
    name: "",
    context_window: 0,
    price: (0.0, 0.0),
    source: UsageCostSource::Unknown,
};

/// The model that a conversation without one is played with.
pub fn dealt(index: usize) -> (String, String) {
    let model = MODELS.iter().cycle().nth(index % MODELS.len());
    let model = model.unwrap_or(&UNLISTED);
    (model.provider.to_owned(), model.name.to_owned())
}

/// Sums up the provider calls of one turn, given as (input, cached input, output) tokens in order.
pub fn usage(provider: &str, model: &str, calls: &[(u64, u64, u64)]) -> MessageUsage {
    let listed = MODELS
        .iter()
        .find(|listed| listed.provider == provider && listed.name == model)
        .unwrap_or(&UNLISTED);
    let (last_input, _, last_output) = calls.last().copied().unwrap_or_default();
    let mut usage = MessageUsage {
        context_window: listed.context_window,
        last_call_input: last_input,
        last_call_output: last_output,
        cost_source: Some(listed.source),
        ..MessageUsage::default()
    };
    for (input, cached, output) in calls {
        usage.input += input;
        usage.cached_input += cached;
        usage.output += output;
    }
    let (input_price, output_price) = listed.price;
    usage.cost_usd = (as_f64(usage.input - usage.cached_input) * input_price
        + as_f64(usage.cached_input) * input_price / 10.0
        + as_f64(usage.output) * output_price)
        / 1e6;
    usage
}

/// About how many tokens a row is: four characters each, and a little for being a row.
pub fn tokens(row: &TranscriptMessage) -> u64 {
    let calls = row.tool_calls.iter();
    let calls: usize = calls
        .map(|call| call.name.len() + call.arguments.len())
        .sum();
    4 + u64::try_from((row.content.len() + calls) / 4).unwrap_or(u64::MAX)
}

/// Token counts stay far below 2^53, where this is exact.
#[allow(clippy::cast_precision_loss)]
fn as_f64(tokens: u64) -> f64 {
    tokens as f64
}
