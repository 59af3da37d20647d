//! What each tenant used.

use std::collections::HashMap;

use crate::world::ModelLabel;

/// Tenants counted apart, on each core. They come from configuration and tokens' claims; those beyond share one label.
const MAX_TENANTS: usize = 1000;

/// Tokens of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// Prompt and output, as the engine reported them.
    Exact(u64, u64),
    /// Prompt and output, as the gateway guesses.
    Estimated(u64, u64),
}

impl Tokens {
    /// Both together.
    pub fn sum(self) -> u64 {
        let (Tokens::Exact(prompt, output) | Tokens::Estimated(prompt, output)) = self;
        prompt.saturating_add(output)
    }
}

/// Prompt and output tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Prompt tokens.
    pub prompt: u64,
    /// Generated tokens.
    pub output: u64,
}

impl TokenCounts {
    fn add(&mut self, prompt: u64, output: u64) {
        self.prompt = self.prompt.saturating_add(prompt);
        self.output = self.output.saturating_add(output);
    }
}

/// Counts for one tenant and model.
#[derive(Clone, Debug, Default)]
pub struct TenantSeries {
    /// Requests by status; few different ones.
    pub by_status: Vec<(u16, u64)>,
    /// As engines reported.
    pub exact: TokenCounts,
    /// Where no engine reported: estimated.
    pub estimated: TokenCounts,
}

impl TenantSeries {
    /// Counts a request.
    pub fn count(&mut self, status: u16, tokens: Tokens) {
        self.count_status(status, 1);
        match tokens {
            Tokens::Exact(prompt, output) => self.exact.add(prompt, output),
            Tokens::Estimated(prompt, output) => self.estimated.add(prompt, output),
        }
    }

    fn count_status(&mut self, status: u16, count: u64) {
        match self.by_status.iter_mut().find(|(known, _)| *known == status) {
            Some((_, total)) => *total += count,
            None => self.by_status.push((status, count)),
        }
    }

    fn add(&mut self, other: &Self) {
        for &(status, count) in &other.by_status {
            self.count_status(status, count);
        }
        self.exact.add(other.exact.prompt, other.exact.output);
        self.estimated.add(other.estimated.prompt, other.estimated.output);
    }
}

/// Counts by tenant and model.
#[derive(Clone, Debug, Default)]
pub struct Tenants {
    by_tenant: HashMap<Box<str>, HashMap<ModelLabel, TenantSeries>>,
}

impl Tenants {
    /// The counts of a tenant and model.
    pub fn series(&mut self, tenant: &str, model: ModelLabel) -> &mut TenantSeries {
        let has_room = self.by_tenant.len() < MAX_TENANTS;
        let tenant = if has_room || self.by_tenant.contains_key(tenant) { tenant } else { access::OTHER };
        // `entry` would need a new key for every request.
        if !self.by_tenant.contains_key(tenant) {
            self.by_tenant.insert(tenant.into(), HashMap::new());
        }
        match self.by_tenant.get_mut(tenant) {
            Some(models) => models.entry(model).or_default(),
            None => unreachable!("it was put there"),
        }
    }

    /// Adds another core's counts.
    pub fn add(&mut self, other: &Self) {
        for (tenant, model, series) in other.iter() {
            self.series(tenant, model).add(series);
        }
    }

    /// All counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, ModelLabel, &TenantSeries)> {
        self.by_tenant.iter().flat_map(|(tenant, models)| {
            models.iter().map(move |(&model, series)| (&**tenant, model, series))
        })
    }

    /// Forgets models that are gone, as the other counts do.
    pub fn retain(&mut self, is_current: impl Fn(ModelLabel) -> bool) {
        for models in self.by_tenant.values_mut() {
            models.retain(|&model, _| is_current(model));
        }
        self.by_tenant.retain(|_, models| !models.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_beyond_the_bound_share_a_label() {
        let mut tenants = Tenants::default();
        for number in 0..MAX_TENANTS + 5 {
            tenants.series(&format!("t{number}"), ModelLabel::OTHER).count(200, Tokens::Exact(1, 2));
        }
        tenants.series("t3", ModelLabel::OTHER).count(200, Tokens::Estimated(1, 2));
        let of = |name: &str| {
            tenants.iter().find(|(tenant, ..)| *tenant == name).map(|(.., series)| series.clone())
        };
        let other = of("other").expect("those beyond");
        assert_eq!((other.by_status.as_slice(), other.exact.output), (&[(200, 5)][..], 10));
        assert_eq!(of("t3").expect("an early one").estimated, TokenCounts { prompt: 1, output: 2 });
        assert_eq!(tenants.by_tenant.len(), MAX_TENANTS + 1);
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let mut tenants = Tenants::default();
        tenants.series("a", ModelLabel(1)).count(200, Tokens::Exact(1, 1));
        tenants.series("b", ModelLabel(2)).count(200, Tokens::Exact(1, 1));
        tenants.retain(|model| model == ModelLabel(2));
        assert_eq!(tenants.iter().map(|(tenant, ..)| tenant).collect::<Vec<_>>(), ["b"]);
    }
}
