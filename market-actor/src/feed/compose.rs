//! Joins prices of one source with capacities of another: a composite, and named so.
//!
//! Few public sources have both for one pool. A composite is a made-up market: its two halves never met, so what
//! depends on how price and capacity move together cannot be learnt from it.

use shared::units::MicroUsd;
use thiserror::Error;

use super::Observed;
use crate::market::Pool;

/// The provider of every composite.
pub const COMPOSITE: &str = "composite";

/// How the two clocks are put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// Both begin at once, when the capacities do.
    #[default]
    Begin,
    /// By the calendar: both sources have dates.
    Calendar,
}

/// Scales prices from a machine of one on-demand price to one of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// On-demand price of the machine whose prices they are.
    pub from: MicroUsd,
    /// On-demand price of the machine that they are to stand for.
    pub to: MicroUsd,
}

/// Why two sources cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ComposeError {
    /// The first has no prices.
    #[error("{machine} has no spot prices: give a source that has as the source of prices")]
    NoPrice {
        /// Whose.
        machine: String,
    },
    /// The second has no capacities.
    #[error("{machine} has no capacities: give a source that has as the source of capacities")]
    NoCapacity {
        /// Whose.
        machine: String,
    },
    /// A source without dates cannot be put on a calendar.
    #[error("{machine} has no dates: let both sources begin at once instead")]
    NoDates {
        /// Whose.
        machine: String,
    },
    /// Prices cannot be scaled from nothing.
    #[error(
        "prices of {machine} are scaled from an on-demand price of 0: give its on-demand price"
    )]
    NoScale {
        /// Whose.
        machine: String,
    },
}

/// Prices of the first, capacities of the second.
///
/// # Errors
/// See [`ComposeError`].
pub fn compose(
    prices: &Observed,
    capacities: &Observed,
    align: Align,
    scale: Option<Scale>,
) -> Result<Observed, ComposeError> {
    let machine = |of: &Observed| of.pool.machine.clone();
    let Some(price) = &prices.spot_price else {
        let machine = machine(prices);
        return Err(ComposeError::NoPrice { machine });
    };
    let Some(capacity) = &capacities.spot_available else {
        let machine = machine(capacities);
        return Err(ComposeError::NoCapacity { machine });
    };
    if scale.is_some_and(|scale| scale.from.0 == 0) {
        let machine = machine(prices);
        return Err(ComposeError::NoScale { machine });
    }
    if align == Align::Calendar
        && let Some(undated) = [prices, capacities].into_iter().find(|of| !of.dated)
    {
        let machine = machine(undated);
        return Err(ComposeError::NoDates { machine });
    }
    let start = match align {
        Align::Begin => capacity.start(),
        Align::Calendar => price.start(),
    };
    let scaled = |usd: MicroUsd| scale.map_or(usd, |scale| scale.of(usd));
    let pool = Pool {
        provider: COMPOSITE.to_owned(),
        machine: format!("{} at prices of {}", name(capacities), name(prices)),
        ..capacities.pool.clone()
    };
    Ok(Observed {
        spot_price: Some(price.moved(start, scaled)),
        spot_available: Some(capacity.clone()),
        // They are of the machine that the capacities are of.
        on_demand_price: capacities.on_demand_price.clone(),
        on_demand_available: capacities.on_demand_available.clone(),
        pool,
        dated: capacities.dated,
    })
}

impl Scale {
    fn of(self, usd: MicroUsd) -> MicroUsd {
        let from = u128::from(self.from.0);
        let scaled = (u128::from(usd.0) * u128::from(self.to.0) + from / 2) / from;
        MicroUsd(
            u64::try_from(scaled)
                .unwrap_or(super::money::MOST)
                .min(super::money::MOST),
        )
    }
}

fn name(observed: &Observed) -> String {
    let pool = &observed.pool;
    if pool.zone.is_empty() {
        pool.machine.clone()
    } else {
        format!("{} {}", pool.machine, pool.zone)
    }
}

#[cfg(test)]
mod tests {
    use shared::units::Micros;

    use super::*;
    use crate::feed::Steps;

    fn pool(machine: &str, zone: &str) -> Pool {
        Pool {
            provider: "aws".into(),
            region: String::new(),
            zone: zone.into(),
            machine: machine.into(),
        }
    }

    fn priced(dated: bool) -> Observed {
        let changes = vec![(Micros(100), MicroUsd(65)), (Micros(150), MicroUsd(130))];
        Observed {
            spot_price: Steps::new(changes, Micros(200)),
            ..Observed::nothing(pool("g2.2xlarge", "us-east-1e"), dated)
        }
    }

    fn sized(dated: bool) -> Observed {
        Observed {
            spot_available: Steps::new(vec![(Micros(7), 4)], Micros(300)),
            ..Observed::nothing(pool("v100_1", "us-west-2a"), dated)
        }
    }

    #[test]
    fn both_begin_at_once_and_prices_are_scaled() {
        let scale = Scale {
            from: MicroUsd(650),
            to: MicroUsd(3060),
        };
        let joined = compose(&priced(true), &sized(false), Align::Begin, Some(scale)).unwrap();
        let prices = joined.spot_price.unwrap();
        let expected = [(Micros(7), MicroUsd(306)), (Micros(57), MicroUsd(612))];
        assert_eq!(prices.changes(), expected);
        assert_eq!(prices.end(), Micros(107));
        assert_eq!(joined.pool.provider, "composite");
        assert_eq!(
            joined.pool.machine,
            "v100_1 us-west-2a at prices of g2.2xlarge us-east-1e"
        );
        assert!(!joined.dated);
    }

    #[test]
    fn by_the_calendar_nothing_moves() {
        let joined = compose(&priced(true), &sized(true), Align::Calendar, None).unwrap();
        assert_eq!(joined.spot_price, priced(true).spot_price);
        let undated = compose(&priced(true), &sized(false), Align::Calendar, None);
        assert!(matches!(undated, Err(ComposeError::NoDates { .. })));
    }

    #[test]
    fn what_machines_cost_on_demand_comes_with_their_capacities() {
        let mut sized = sized(false);
        sized.on_demand_price = Steps::new(vec![(Micros(7), MicroUsd(900))], Micros(300));
        sized.on_demand_available = Steps::new(vec![(Micros(7), 2)], Micros(300));
        let joined = compose(&priced(true), &sized, Align::Begin, None).unwrap();
        assert_eq!(joined.on_demand_price, sized.on_demand_price);
        assert_eq!(joined.on_demand_available, sized.on_demand_available);
    }

    #[test]
    fn halves_must_be_there() {
        let no_price = compose(&sized(true), &sized(true), Align::Begin, None);
        assert!(matches!(no_price, Err(ComposeError::NoPrice { .. })));
        let no_capacity = compose(&priced(true), &priced(true), Align::Begin, None);
        assert!(matches!(no_capacity, Err(ComposeError::NoCapacity { .. })));
        let scale = Scale {
            from: MicroUsd(0),
            to: MicroUsd(1),
        };
        let from_nothing = compose(&priced(true), &sized(true), Align::Begin, Some(scale));
        assert!(matches!(from_nothing, Err(ComposeError::NoScale { .. })));
    }
}
