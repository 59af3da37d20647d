//! The load an engine reports about itself.

use crate::EngineKind;
use crate::exposition::{Sample, name_ends, quantity};

/// What an engine says about its load at one moment. `None` is *unknown* (the family is absent, or its value is not
/// a usable number), never zero.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Signals {
    /// Requests in the running batch, summed over the engines behind one address.
    pub running: Option<u32>,
    /// Requests queued inside the engine, summed likewise.
    pub waiting: Option<u32>,
    /// Share of the KV cache in use, 0 to 1; the mean over the engines behind one address.
    pub kv_usage: Option<f32>,
    /// Tokens in one KV block; unknown when the engines behind one address differ.
    pub block_size: Option<u32>,
    /// KV blocks in all, summed over the engines behind one address.
    pub num_blocks: Option<u32>,
}

impl Signals {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Signals::default()
    }
}

/// Where a family's number goes.
#[derive(Clone, Copy)]
enum Slot {
    Running,
    Waiting,
    KvUsage,
    /// A former name of the same gauge; used when the present one is absent.
    KvUsageFormer,
    BlockSize,
    NumBlocks,
    /// The same two, from the labels of an info metric.
    BlockLabels {
        size: &'static [u8],
        count: &'static [u8],
    },
}

/// One family to take from a page. `name` has no prefix.
struct Family {
    name: &'static [u8],
    /// Only series with this label.
    only: Option<(&'static [u8], &'static [u8])>,
    slot: Slot,
}

const fn family(name: &'static str, slot: Slot) -> Family {
    Family { name: name.as_bytes(), only: None, slot }
}

const fn labelled(name: &'static str, label: &'static str, value: &'static str, slot: Slot) -> Family {
    Family { name: name.as_bytes(), only: Some((label.as_bytes(), value.as_bytes())), slot }
}

/// The names of one engine. All of them start with `prefix`, so that one comparison skips a foreign line.
struct Names {
    prefix: &'static [u8],
    families: &'static [Family],
    /// Series that differ only in other labels than this one report the same thing several times.
    once_per: Option<&'static [u8]>,
}

/// vLLM 0.32. `gpu_cache_usage_perc` was the gauge's name up to 0.10.
static VLLM: Names = Names {
    prefix: b"vllm:",
    families: &[
        family("num_requests_running", Slot::Running),
        family("num_requests_waiting", Slot::Waiting),
        family("kv_cache_usage_perc", Slot::KvUsage),
        family("gpu_cache_usage_perc", Slot::KvUsageFormer),
        family("cache_config_info", Slot::BlockLabels { size: b"block_size", count: b"num_gpu_blocks" }),
    ],
    once_per: None,
};

/// SGLang. Capacity is two gauges since 0.5.11 and was the labels of an info metric before. With metrics on for all
/// schedulers each tensor-parallel rank repeats the numbers of its data-parallel rank.
static SGLANG: Names = Names {
    prefix: b"sglang:",
    families: &[
        family("num_running_reqs", Slot::Running),
        family("num_queue_reqs", Slot::Waiting),
        family("token_usage", Slot::KvUsage),
        family("page_size", Slot::BlockSize),
        family("num_pages", Slot::NumBlocks),
        family("cache_config_info", Slot::BlockLabels { size: b"page_size", count: b"num_pages" }),
    ],
    once_per: Some(b"dp_rank"),
};

/// `trtllm-serve`.
static TRTLLM: Names = Names {
    prefix: b"trtllm_",
    families: &[
        family("num_requests_running", Slot::Running),
        family("num_requests_waiting", Slot::Waiting),
        family("kv_cache_utilization", Slot::KvUsage),
        family("kv_cache_tokens_per_block", Slot::BlockSize),
        family("kv_cache_max_blocks", Slot::NumBlocks),
    ],
    once_per: None,
};

/// Triton's TensorRT-LLM backend. `active` counts waiting ones too, so running is `scheduled`.
static TRITON: Names = Names {
    prefix: b"nv_trt_llm_",
    families: &[
        labelled("request_metrics", "request_type", "scheduled", Slot::Running),
        labelled("request_metrics", "request_type", "waiting", Slot::Waiting),
        labelled("kv_cache_block_metrics", "kv_cache_block_type", "fraction", Slot::KvUsage),
        labelled("kv_cache_block_metrics", "kv_cache_block_type", "tokens_per", Slot::BlockSize),
        labelled("kv_cache_block_metrics", "kv_cache_block_type", "max", Slot::NumBlocks),
    ],
    once_per: None,
};

/// llama.cpp. The ratio is gone from recent builds.
static LLAMACPP: Names = Names {
    prefix: b"llamacpp:",
    families: &[
        family("requests_processing", Slot::Running),
        family("requests_deferred", Slot::Waiting),
        family("kv_cache_usage_ratio", Slot::KvUsage),
    ],
    once_per: None,
};

/// text-generation-inference.
static TGI: Names = Names {
    prefix: b"tgi_",
    families: &[family("batch_current_size", Slot::Running), family("queue_size", Slot::Waiting)],
    once_per: None,
};

fn names(kind: EngineKind) -> Option<&'static Names> {
    match kind {
        EngineKind::Vllm => Some(&VLLM),
        EngineKind::Sglang => Some(&SGLANG),
        EngineKind::TrtLlm => Some(&TRTLLM),
        EngineKind::Triton => Some(&TRITON),
        EngineKind::LlamaCpp => Some(&LLAMACPP),
        EngineKind::Tgi => Some(&TGI),
        EngineKind::Ollama | EngineKind::Ridge | EngineKind::Unknown => None,
    }
}

/// The series of one slot so far.
#[derive(Clone, Copy, Default)]
struct Tally {
    sum: f64,
    series: u32,
    first: f64,
    differ: bool,
    /// One series was unusable. A sum over the others would pass for the whole, so the slot becomes unknown.
    spoilt: bool,
    /// Ranks already counted, one bit each.
    ranks: u128,
}

impl Tally {
    fn add(&mut self, value: Option<f64>) {
        let Some(value) = value else {
            self.spoilt = true;
            return;
        };
        if self.series == 0 {
            self.first = value;
        }
        self.differ |= value != self.first;
        self.sum += value;
        self.series = self.series.saturating_add(1);
    }

    /// Whether this rank was counted before. Ranks of 128 and more (or that are no number) share the last bit.
    fn counted(&mut self, rank: Option<&[u8]>) -> bool {
        let rank = rank.map_or(Some(0.0), quantity).unwrap_or(127.0).min(127.0) as u32;
        let bit = 1u128 << rank;
        let counted = self.ranks & bit != 0;
        self.ranks |= bit;
        counted
    }

    fn present(&self) -> bool {
        self.series > 0 && !self.spoilt
    }

    fn total(&self) -> Option<u32> {
        // A count above u32 is no count of requests or blocks.
        (self.present() && self.sum <= f64::from(u32::MAX)).then_some(self.sum as u32)
    }

    fn same(&self) -> Option<u32> {
        (self.present() && !self.differ && self.first <= f64::from(u32::MAX) && self.first >= 1.0)
            .then_some(self.first as u32)
    }

    fn mean_share(&self) -> Option<f32> {
        let mean = self.sum / f64::from(self.series.max(1));
        // Rounding may pass 1 by a hair; anything more is another unit (per cent, tokens) and no share.
        (self.present() && mean <= 1.01).then_some(mean.min(1.0) as f32)
    }
}

#[derive(Default)]
struct Tallies {
    running: Tally,
    waiting: Tally,
    kv_usage: Tally,
    kv_usage_former: Tally,
    block_size: Tally,
    num_blocks: Tally,
}

impl Tallies {
    fn take(&mut self, slot: Slot, sample: Option<&Sample<'_>>, once_per: Option<&[u8]>) {
        let tally = match slot {
            Slot::Running => &mut self.running,
            Slot::Waiting => &mut self.waiting,
            Slot::KvUsage => &mut self.kv_usage,
            Slot::KvUsageFormer => &mut self.kv_usage_former,
            Slot::BlockSize => &mut self.block_size,
            Slot::NumBlocks => &mut self.num_blocks,
            Slot::BlockLabels { size, count } => {
                let Some(sample) = sample else { return };
                let label = |name| sample.label(name).and_then(quantity);
                if once_per.is_some_and(|by| self.block_size.counted(sample.label(by))) {
                    return;
                }
                self.block_size.add(label(size));
                self.num_blocks.add(label(count));
                return;
            }
        };
        if let (Some(by), Some(sample)) = (once_per, sample)
            && tally.counted(sample.label(by))
        {
            return;
        }
        tally.add(sample.and_then(Sample::value));
    }
}

/// Reads an engine's Prometheus page.
///
/// Takes only the few families needed and allocates nothing; time is linear in `text` whatever it holds, and any
/// bytes are allowed. A family that is absent, malformed or not a finite number from zero up is unknown, and so is
/// one of which any series is: a partial sum would pass for the whole. The caller bounds the size of the page, and
/// drops one that it had to cut (a missing tail can hide a series).
pub fn parse_metrics(kind: EngineKind, text: &[u8]) -> Signals {
    let Some(names) = names(kind) else { return Signals::default() };
    let mut tallies = Tallies::default();
    let mut start = 0;
    for newline in memchr::memchr_iter(b'\n', text) {
        read_line(names, &text[start..newline], &mut tallies);
        start = newline + 1;
    }
    read_line(names, &text[start..], &mut tallies);

    let kv_usage = if tallies.kv_usage.series > 0 || tallies.kv_usage.spoilt {
        tallies.kv_usage
    } else {
        tallies.kv_usage_former
    };
    Signals {
        running: tallies.running.total(),
        waiting: tallies.waiting.total(),
        kv_usage: kv_usage.mean_share(),
        block_size: tallies.block_size.same(),
        num_blocks: tallies.num_blocks.total(),
    }
}

#[inline]
fn read_line(names: &Names, line: &[u8], tallies: &mut Tallies) {
    // Most lines are another family's; they must cost two short comparisons and no more.
    let Some(rest) = line.strip_prefix(names.prefix) else { return };
    let mut sample = None;
    for family in names.families {
        if rest.first() != family.name.first() {
            continue;
        }
        let Some(after_name) = rest.strip_prefix(family.name) else { continue };
        if !name_ends(after_name) {
            continue;
        }
        let sample = sample.get_or_insert_with(|| Sample::read(after_name));
        if let (Some((label, value)), Some(sample)) = (family.only, sample.as_ref())
            && sample.label(label) != Some(value)
        {
            continue;
        }
        tallies.take(family.slot, sample.as_ref(), names.once_per);
    }
}
