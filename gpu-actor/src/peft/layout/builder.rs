//! Compiles methods into parameters and site operations, one method at a time.

use std::ops::Range;

use shared::job::{BottleneckPlacement, BottleneckSpec, LoraSpec, Targets};
use shared::model::{ModelShape, Projection, Target};

use super::{
    BottleneckSite, DIRECT_PREFIX, Home, LayerSites, Layout, LinearSite, Parameter, Piece,
    PrefixSite, ProjectionSite, Rate, Start, module_key,
};

/// A layout in the making.
pub(super) struct Builder<'a> {
    pub(super) shape: &'a ModelShape,
    pub(super) layout: Layout,
    /// Who holds what is added next.
    pub(super) home: Home,
}

impl<'a> Builder<'a> {
    pub(super) fn new(shape: &'a ModelShape) -> Self {
        let layout = Layout {
            parameters: Vec::new(),
            layers: vec![LayerSites::default(); shape.layers],
            head: None,
            prefix: None,
            prompt: None,
            pieces: Vec::new(),
            span: 0..shape.layers,
            len: 0,
        };
        let home = Home::Every;
        Self {
            shape,
            layout,
            home,
        }
    }

    pub(super) fn add(&mut self, key: String, shape: &[usize], start: Start) -> Range<usize> {
        self.add_with(key, shape, false, Rate::Base, start)
    }

    fn add_with(
        &mut self,
        key: String,
        shape: &[usize],
        transposed: bool,
        rate: Rate,
        start: Start,
    ) -> Range<usize> {
        let size = shape.iter().product();
        let home = self.home;
        self.add_pieces(key, shape, transposed, rate, start, size, |_| home)
    }

    /// Adds a parameter that is cut into pieces of `size`, the home of each by its index.
    #[expect(clippy::too_many_arguments, reason = "the parameter and its cut")]
    fn add_pieces(
        &mut self,
        key: String,
        shape: &[usize],
        transposed: bool,
        rate: Rate,
        start: Start,
        size: usize,
        home: impl Fn(usize) -> Home,
    ) -> Range<usize> {
        let range = self.layout.len..self.layout.len + shape.iter().product::<usize>();
        self.layout.len = range.end;
        for (index, at) in range.clone().step_by(size.max(1)).enumerate() {
            self.layout.pieces.push(Piece {
                number: self.layout.pieces.len(),
                home: home(index),
                range: at..at + size,
                whole: at..at + size,
            });
        }
        let parameter = Parameter {
            key,
            shape: shape.to_vec(),
            range: range.clone(),
            transposed,
            rate,
            start,
        };
        self.layout.parameters.push(parameter);
        range
    }

    /// Calls `make` for each targeted projection of each block.
    pub(super) fn each_linear(
        &mut self,
        targets: &Targets,
        mut make: impl FnMut(&mut Self, usize, Projection) -> LinearSite,
    ) {
        let targets = targets.resolve().expect("the spec was checked");
        for layer in 0..self.shape.layers {
            self.home = Home::Layer(layer);
            for target in &targets {
                if let Target::Block(projection) = *target {
                    let site = make(self, layer, projection);
                    self.layout.layers[layer].linear[projection as usize] = Some(site);
                }
            }
        }
    }

    pub(super) fn lora(&mut self, spec: &LoraSpec) {
        self.each_linear(&spec.targets, |b, layer, projection| {
            let (out, input) = b.shape.projection(projection);
            let magnitude = spec.dora.then_some(Start::RowNorms(layer, projection));
            b.low_rank(spec, &module_key(layer, projection), out, input, magnitude)
        });
        let targets = spec.targets.resolve().expect("the spec was checked");
        if targets.contains(&Target::LmHead) {
            let (vocab, hidden) = (self.shape.vocab, self.shape.hidden);
            self.home = Home::Last;
            let site = self.low_rank(spec, "base_model.model.lm_head", vocab, hidden, None);
            self.layout.head = Some(site);
        }
    }

    fn low_rank(
        &mut self,
        spec: &LoraSpec,
        module: &str,
        out: usize,
        input: usize,
        magnitude: Option<Start>,
    ) -> LinearSite {
        // PEFT: kaiming_uniform(a = sqrt 5), that is uniform within 1 / sqrt(fan in); B starts at zero.
        let bound = 1.0 / (input as f32).sqrt();
        let (rank, rate) = (spec.rank, Rate::Scaled);
        let a = self.add(
            format!("{module}.lora_A.weight"),
            &[rank, input],
            Start::Uniform(bound),
        );
        let key = format!("{module}.lora_B.weight");
        let b = self.add_with(key, &[out, rank], true, rate, Start::Zero);
        let magnitude = magnitude
            .map(|start| self.add(format!("{module}.lora_magnitude_vector"), &[out], start));
        let (scale, dropout) = (spec.scale() as f32, spec.dropout as f32);
        LinearSite::LowRank {
            a,
            b,
            rank,
            scale,
            dropout,
            magnitude,
        }
    }

    pub(super) fn scaling(
        &mut self,
        layer: usize,
        projection: Projection,
        input: bool,
    ) -> LinearSite {
        let (out, width) = self.shape.projection(projection);
        let key = format!("{}.ia3_l", module_key(layer, projection));
        if input {
            LinearSite::ScaleInput(self.add(key, &[1, width], Start::One))
        } else {
            LinearSite::ScaleOutput(self.add(key, &[out, 1], Start::One))
        }
    }

    pub(super) fn bias(&mut self, layer: usize, projection: Projection) -> LinearSite {
        let (out, _) = self.shape.projection(projection);
        let key = format!("{}.bias_delta", module_key(layer, projection));
        LinearSite::Bias(self.add(key, &[out], Start::Zero))
    }

    pub(super) fn bottlenecks(&mut self, spec: &BottleneckSpec) {
        for layer in 0..self.shape.layers {
            self.home = Home::Layer(layer);
            if spec.placement != BottleneckPlacement::Pfeiffer {
                self.layout.layers[layer].attention =
                    Some(self.bottleneck(spec, layer, "self_attn"));
            }
            self.layout.layers[layer].feed_forward = Some(self.bottleneck(spec, layer, "mlp"));
        }
    }

    fn bottleneck(&mut self, spec: &BottleneckSpec, layer: usize, module: &str) -> BottleneckSite {
        let (size, hidden) = (spec.size, self.shape.hidden);
        let key =
            |leaf: &str| format!("base_model.model.model.layers.{layer}.{module}.adapter.{leaf}");
        let down = self.add(
            key("down_proj.weight"),
            &[size, hidden],
            Start::Normal(0.02),
        );
        let down_bias = self.add(key("down_proj.bias"), &[size], Start::Zero);
        let (up_key, shape) = (key("up_proj.weight"), [hidden, size]);
        let up = self.add_with(up_key, &shape, true, Rate::Base, Start::Zero);
        let up_bias = self.add(key("up_proj.bias"), &[hidden], Start::Zero);
        let (non_linearity, parallel) = (
            spec.non_linearity,
            spec.placement == BottleneckPlacement::Parallel,
        );
        BottleneckSite {
            down,
            down_bias,
            up,
            up_bias,
            size,
            non_linearity,
            parallel,
        }
    }

    pub(super) fn prefix(&mut self, tokens: usize, projection: Option<usize>) {
        let (kv, layers) = (self.shape.kv_width(), self.shape.layers);
        let width = 2 * layers * kv;
        // Keys and values of a layer lie side by side, and layers follow each other.
        let by_layer = |index| Home::Layer(index % layers);
        let mut site = PrefixSite {
            tokens,
            layers: 0..layers,
            projection: None,
            direct: None,
        };
        if let Some(hidden) = projection {
            // torch.nn.Linear starts uniform within 1 / sqrt(fan in), weight and bias alike.
            let first = Start::Uniform(1.0 / (kv as f32).sqrt());
            let second = Start::Uniform(1.0 / (hidden as f32).sqrt());
            let key = |leaf: &str| format!("prompt_encoder.{leaf}");
            let rate = Rate::Base;
            site.projection = Some(ProjectionSite {
                embedding: self.add(key("embedding.weight"), &[tokens, kv], Start::Normal(1.0)),
                first: self.add(key("transform.0.weight"), &[hidden, kv], first),
                first_bias: self.add(key("transform.0.bias"), &[hidden], first),
                second: self.add_pieces(
                    key("transform.2.weight"),
                    &[width, hidden],
                    false,
                    rate,
                    second,
                    2 * kv * hidden,
                    by_layer,
                ),
                second_bias: self.add_pieces(
                    key("transform.2.bias"),
                    &[width],
                    false,
                    rate,
                    second,
                    2 * kv,
                    by_layer,
                ),
                hidden,
            });
        } else {
            let (key, start) = (DIRECT_PREFIX.to_owned(), Start::Normal(1.0));
            let shape = [tokens, width];
            let direct = self.add_pieces(key, &shape, false, Rate::Base, start, 2 * kv, by_layer);
            site.direct = Some(direct);
        }
        self.layout.prefix = Some(site);
    }
}
