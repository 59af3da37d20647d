//! The known word that a misspelt one was probably meant to be.

/// The nearest of `known`, if it is near enough to be worth a guess.
pub(crate) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    // Bounded work for absurd words; no key is longer than that.
    if word.len() > 64 {
        return None;
    }
    let plain = |text: &str| text.to_lowercase().replace(['-', ' ', '.'], "_");
    let word = plain(word);
    let limit = (word.chars().count() / 3).clamp(1, 4);
    known
        .iter()
        .map(|&key| (strsim::damerau_levenshtein(&word, &plain(key)), key))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, key)| key)
        .or_else(|| {
            // `listen_address` for `listen`, `affinity` for `prefix_affinity`.
            known
                .iter()
                .copied()
                .find(|key| word.len() >= 4 && key.len() >= 4 && (key.contains(&*word) || word.contains(key)))
        })
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_near_word_is_found_and_a_far_one_is_not() {
        let known = ["weight", "listen", "max_in_flight", "prefix_affinity"];
        assert_eq!(nearest("weigth", &known), Some("weight"));
        assert_eq!(nearest("max-in-flight", &known), Some("max_in_flight"));
        assert_eq!(nearest("affinity", &known), Some("prefix_affinity"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest(&"a".repeat(100_000), &known), None);
    }
}
