//! Pictures of a market as SVG text: what prices and capacities were, what was thought of them, what was held.
//!
//! Panels over one axis of time, those of what there is: the spot price with the on-demand price and the band from the 10 to the
//! 90 % quantile of outlooks; capacities with the same band; and machines held, spot below on-demand. The text is a
//! function of the arguments, the same on every machine that rounds the same, so that it can be compared as it is.

use crate::forecast::{Outlook, SlotOutlook};
use crate::market::{Market, Slot};

mod axis;
pub mod curves;
mod panel;
mod svg;

use axis::{Times, ticks};
use panel::{Frame, Key};
use svg::Svg;

/// Machines held in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Spot machines.
    pub spot: u32,
    /// On-demand machines.
    pub on_demand: u32,
}

/// What a picture shows.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// Above it.
    pub title: &'a str,
    /// What was.
    pub market: &'a Market,
    /// Whether the market's start is a date; otherwise time counts from its first slot.
    pub dated: bool,
    /// What was thought: the slot (of the market) that an outlook begins with, and the outlook. It may go on beyond the
    /// market's end.
    pub outlooks: &'a [(usize, Outlook)],
    /// What was held in each slot from the first on; no panel when it is empty.
    pub held: &'a [Held],
}

/// What one panel shows.
#[derive(Clone, Copy, Debug)]
enum Panel {
    Price,
    Capacity,
    Held,
}

impl Panel {
    const fn height(self) -> f64 {
        match self {
            Self::Price => 220.0,
            Self::Capacity => 160.0,
            Self::Held => 130.0,
        }
    }
}

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 40.0;
/// From one panel's plot to the next one's: the line with its title and keys.
const GAP: f64 = 40.0;
const BOTTOM: f64 = 46.0;

const SPOT: &str = "#0072b2";
const BAND: &str = "#56b4e9";
const MEDIAN: &str = "#cc79a7";
const ON_DEMAND: &str = "#d55e00";
const CAPACITY: &str = "#009e73";

impl Picture<'_> {
    /// The picture.
    #[must_use]
    pub fn svg(&self) -> String {
        let slots = self.slots().max(1);
        let panels = self.panels();
        let below: f64 = panels.iter().map(|panel| panel.height() + GAP).sum();
        let mut svg = Svg::new(WIDTH, TOP + below + BOTTOM - GAP + 24.0);
        svg.heading(LEFT, 24.0, self.title);
        let times = Times::new(self.market.start, self.market.slot, slots, self.dated);
        let mut top = TOP + 24.0;
        for (number, panel) in panels.iter().enumerate() {
            // There are no halves of machines.
            let scale = match panel {
                Panel::Price => ticks(self.most_price(), 0.0),
                Panel::Capacity => ticks(self.most_capacity(), 1.0),
                Panel::Held => ticks(self.most_held(), 1.0),
            };
            let frame = Frame {
                left: LEFT,
                top,
                width: WIDTH - LEFT - RIGHT,
                height: panel.height(),
                slots,
                most: scale.last().copied().unwrap_or(1.0),
            };
            frame.grid(&mut svg, &scale, &times);
            match panel {
                Panel::Price => self.prices(&mut svg, &frame),
                Panel::Capacity => self.capacities(&mut svg, &frame),
                Panel::Held => self.holdings(&mut svg, &frame),
            }
            if let [(first, _)] = self.outlooks {
                let words = if number == 0 {
                    "forecast from here"
                } else {
                    ""
                };
                frame.mark(&mut svg, *first, words);
            }
            frame.border(&mut svg);
            if number + 1 == panels.len() {
                frame.times(&mut svg, &times);
            }
            top += panel.height() + GAP;
        }
        svg.finish()
    }

    /// The panels that have something to show; those of a market where there is nothing at all.
    fn panels(&self) -> Vec<Panel> {
        let slots = &self.market.slots;
        let priced = slots.iter().any(|slot| slot.spot_price.0 > 0);
        let sized = slots.iter().any(|slot| slot.spot_available > 0);
        let shown = [
            (priced || !sized, Panel::Price),
            (sized || !priced, Panel::Capacity),
            (!self.held.is_empty(), Panel::Held),
        ];
        let shown = shown.into_iter().filter(|(is_shown, _)| *is_shown);
        shown.map(|(_, panel)| panel).collect()
    }

    /// Slots of the axis of time.
    fn slots(&self) -> usize {
        let outlooks = self.outlooks.iter();
        let ends = outlooks.map(|(first, outlook)| first + outlook.slots.len());
        let ends = ends.chain([self.market.slots.len(), self.held.len()]);
        ends.max().unwrap_or_default()
    }

    fn most_price(&self) -> f64 {
        let slots = self.market.slots.iter();
        let seen = slots.map(|slot| slot.spot_price.max(slot.on_demand_price).dollars());
        let thought = self.thoughts().map(|slot| slot.spot_price.p90.dollars());
        seen.chain(thought).fold(0.0, f64::max)
    }

    fn most_capacity(&self) -> f64 {
        let seen = self.market.slots.iter().map(|slot| slot.spot_available);
        let thought = self
            .thoughts()
            .map(|slot| slot.spot_available.quantile(0.9));
        f64::from(seen.chain(thought).max().unwrap_or_default())
    }

    fn most_held(&self) -> f64 {
        let held = self.held.iter().map(|held| held.spot + held.on_demand);
        f64::from(held.max().unwrap_or_default())
    }

    fn thoughts(&self) -> impl Iterator<Item = &SlotOutlook> {
        self.outlooks.iter().flat_map(|(_, outlook)| &outlook.slots)
    }

    fn prices(&self, svg: &mut Svg, frame: &Frame) {
        let of = |read: fn(&Slot) -> f64| self.market.slots.iter().map(read).collect::<Vec<f64>>();
        for (first, outlook) in self.outlooks {
            let quantile = |read: fn(&SlotOutlook) -> f64| -> Vec<f64> {
                outlook.slots.iter().map(read).collect()
            };
            let low = quantile(|slot| slot.spot_price.p10.dollars());
            let high = quantile(|slot| slot.spot_price.p90.dollars());
            frame.band(svg, *first, &low, &high, BAND);
            let median = quantile(|slot| slot.spot_price.p50.dollars());
            frame.line(svg, *first, &median, MEDIAN, "1.6", "5 3");
        }
        let on_demand = of(|slot| slot.on_demand_price.dollars());
        // A price of 0 stands for one that a source does not have.
        let has_on_demand = on_demand.iter().any(|price| *price > 0.0);
        if has_on_demand {
            frame.line(svg, 0, &on_demand, ON_DEMAND, "1.2", "2 3");
        }
        let spot = of(|slot| slot.spot_price.dollars());
        frame.line(svg, 0, &spot, SPOT, "1.4", "");
        let mut keys = vec![Key::line("spot", SPOT, "")];
        if has_on_demand {
            keys.push(Key::line("on-demand", ON_DEMAND, "2 3"));
        }
        keys.extend(self.outlook_keys());
        frame.head(svg, "price, USD per machine and hour", &keys);
    }

    fn capacities(&self, svg: &mut Svg, frame: &Frame) {
        let seen = self.market.slots.iter();
        let seen: Vec<f64> = seen.map(|slot| f64::from(slot.spot_available)).collect();
        frame.area(svg, 0, &seen, CAPACITY);
        for (first, outlook) in self.outlooks {
            let quantile = |share: f64| -> Vec<f64> {
                let slots = outlook.slots.iter();
                slots
                    .map(|slot| f64::from(slot.spot_available.quantile(share)))
                    .collect()
            };
            frame.band(svg, *first, &quantile(0.1), &quantile(0.9), BAND);
            frame.line(svg, *first, &quantile(0.5), MEDIAN, "1.6", "5 3");
        }
        frame.line(svg, 0, &seen, CAPACITY, "1.4", "");
        let mut keys = vec![Key::line("spot machines that last the slot", CAPACITY, "")];
        keys.extend(self.outlook_keys());
        frame.head(svg, "capacity, machines", &keys);
    }

    fn holdings(&self, svg: &mut Svg, frame: &Frame) {
        let zero = vec![0.0; self.held.len()];
        let spot: Vec<f64> = self.held.iter().map(|held| f64::from(held.spot)).collect();
        let both = self
            .held
            .iter()
            .map(|held| f64::from(held.spot + held.on_demand));
        let both: Vec<f64> = both.collect();
        frame.bars(svg, &zero, &spot, SPOT);
        frame.bars(svg, &spot, &both, ON_DEMAND);
        let keys = [Key::block("spot", SPOT), Key::block("on-demand", ON_DEMAND)];
        frame.head(svg, "held, machines", &keys);
    }

    fn outlook_keys(&self) -> Vec<Key> {
        if self.outlooks.is_empty() {
            return Vec::new();
        }
        vec![
            Key::line("median forecast", MEDIAN, "5 3"),
            Key::block("10 to 90 % of forecast", BAND),
        ]
    }
}

#[cfg(test)]
mod tests;
