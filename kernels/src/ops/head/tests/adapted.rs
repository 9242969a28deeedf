use super::*;

/// An adapter of one job, and the blocks of its rows.
#[derive(Clone)]
struct Job {
    case: Case,
    rank: usize,
    a: Vec<f32>,
    b: Vec<f32>,
    sizes: Vec<usize>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "rank {}, blocks {:?}, {:?}",
            self.rank, self.sizes, self.case
        )
    }
}

const SCALE: f32 = 0.7;

prop_compose! {
    fn jobs()(
        case in cases(0),
        rank in prop_oneof![1..10usize, Just(33usize)],
        sizes in prop::collection::vec(0..65usize, 1..8),
        seed in any::<u64>(),
    ) -> Job {
        let (vocab, hidden) = (case.head.rows(), case.head.cols());
        Job {
            a: numbers(rank * hidden, seed ^ 3),
            b: numbers(rank * vocab, seed ^ 4),
            case: Case::new(case.head, sizes.iter().sum(), 1.0, seed),
            rank,
            sizes,
        }
    }
}

/// What was made of some runs of blocks.
#[derive(Debug, Default, PartialEq)]
struct Adapted {
    loss: Vec<f32>,
    correct: Vec<bool>,
    dx: Vec<f32>,
    da: Vec<f32>,
    db: Vec<f32>,
}

impl Adapted {
    fn bits(&self) -> [Vec<u32>; 4] {
        [&self.loss, &self.dx, &self.da, &self.db].map(|x| bits(x))
    }
}

impl Job {
    fn adapter(&self) -> HeadAdapter<'_> {
        HeadAdapter {
            rank: self.rank,
            a: &self.a,
            b: &self.b,
            scale: SCALE,
            input: None,
        }
    }

    /// Runs the blocks in two calls.
    fn run(&self, cpu: &Cpu, cut: usize) -> Adapted {
        let mut made = Adapted {
            da: vec![f32::NAN; self.a.len()],
            db: vec![f32::NAN; self.b.len()],
            ..Adapted::default()
        };
        let (mut nodes_a, mut nodes_b) = (Nodes::new(), Nodes::new());
        let rows_of = |blocks: Range<usize>| self.sizes[blocks].iter().sum::<usize>();
        for (run, last) in [(0..cut, false), (cut..self.sizes.len(), true)] {
            let first = rows_of(0..run.start);
            let part = self.case.part(first..first + rows_of(run.clone()));
            let mut start = 0;
            let blocks: Vec<Range<usize>> = self.sizes[run.clone()]
                .iter()
                .map(|size| {
                    start += size;
                    start - size..start
                })
                .collect();
            let (mut loss, mut correct) = (vec![f32::NAN; start], vec![false; start]);
            let mut dx = vec![f32::NAN; part.x.len()];
            let sums = AdapterSums {
                first_block: u64::try_from(run.start).unwrap(),
                blocks: &blocks,
                nodes_a: &mut nodes_a,
                nodes_b: &mut nodes_b,
                gradient_a: last.then_some(&mut made.da),
                gradient_b: last.then_some(&mut made.db),
                d_input: None,
            };
            loss_and_gradient_adapted(
                cpu,
                &part.rows(),
                &part.head,
                &self.adapter(),
                &mut loss,
                &mut correct,
                Some(&mut dx),
                Some(sums),
            );
            made.loss.extend(loss);
            made.correct.extend(correct);
            made.dx.extend(dx);
        }
        made
    }

    fn wanted(&self, a: &[f64], b: &[f64], x: &[f64]) -> Made {
        let head = Head {
            weight: &wide(&self.case.head.to_f32()),
            hidden: self.case.head.cols(),
            a,
            b,
            scale: f64::from(SCALE),
        };
        head.run(x, &self.case.targets, &wide(&self.case.coefficients))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn adapted_rows_are_near_the_reference(job in jobs(), products in products()) {
        let made = job.run(&Cpu::new(2).unwrap().with_products(products), 0);
        let wanted = job.wanted(&wide(&job.a), &wide(&job.b), &wide(&job.case.x));
        near("loss", &made.loss, &wanted.loss, 3e-6);
        near("dx", &made.dx, &wanted.dx, 1e-5);
        near("da", &made.da, &wanted.da, 1e-5);
        near("db", &made.db, &wanted.db, 1e-5);
    }

    #[test]
    fn adapted_bits_do_not_depend_on_cuts_threads_or_instructions(
        job in jobs(),
        cut in any::<prop::sample::Index>(),
        threads in 1..4usize,
        products in products(),
    ) {
        let wanted = job.run(&Cpu::new(1).unwrap().with_products(products), 0);
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(threads, isa).unwrap().with_products(products);
            let found = job.run(&cpu, cut.index(job.sizes.len() + 1));
            prop_assert_eq!(found.bits(), wanted.bits());
            prop_assert_eq!(&found.correct, &wanted.correct);
        }
    }
}

#[test]
fn evaluation_gives_the_losses_of_training() {
    let head = weight(Format::F32, 300, 48, 6);
    let job = Job {
        rank: 5,
        a: numbers(5 * 48, 1),
        b: numbers(5 * 300, 2),
        case: Case::new(head, 70, 1.0, 6),
        sizes: vec![64, 6],
    };
    let cpu = Cpu::new(2).unwrap();
    let (mut loss, mut correct) = (vec![f32::NAN; 70], vec![false; 70]);
    let (rows, adapter) = (job.case.rows(), job.adapter());
    loss_and_gradient_adapted(
        &cpu,
        &rows,
        &job.case.head,
        &adapter,
        &mut loss,
        &mut correct,
        None,
        None,
    );
    let trained = job.run(&cpu, 0);
    assert_eq!(
        (bits(&loss), correct),
        (bits(&trained.loss), trained.correct)
    );
}

/// With the adapter's input the same as `x`, the two gradients are the parts of one.
#[test]
fn an_input_of_its_own_has_a_gradient_of_its_own() {
    let head = weight(Format::F32, 120, 32, 6);
    let job = Job {
        rank: 4,
        a: numbers(4 * 32, 1),
        b: numbers(4 * 120, 2),
        case: Case::new(head, 20, 1.0, 6),
        sizes: vec![20],
    };
    let cpu = Cpu::new(2).unwrap();
    let whole = job.run(&cpu, 0);
    let (rows, block) = (job.case.rows(), 0..20);
    let run = |input: &[f32]| {
        let (mut loss, mut correct) = (vec![f32::NAN; 20], vec![false; 20]);
        let [mut dx, mut d_input] = [vec![f32::NAN; 20 * 32], vec![f32::NAN; 20 * 32]];
        let (mut da, mut db) = (vec![0.0; job.a.len()], vec![0.0; job.b.len()]);
        let sums = AdapterSums {
            first_block: 0,
            blocks: std::slice::from_ref(&block),
            nodes_a: &mut Nodes::new(),
            nodes_b: &mut Nodes::new(),
            gradient_a: Some(&mut da),
            gradient_b: Some(&mut db),
            d_input: Some(&mut d_input),
        };
        let adapter = HeadAdapter {
            input: Some(input),
            ..job.adapter()
        };
        let (loss_, dx_) = (&mut loss, Some(&mut dx[..]));
        let head = &job.case.head;
        loss_and_gradient_adapted(
            &cpu,
            &rows,
            head,
            &adapter,
            loss_,
            &mut correct,
            dx_,
            Some(sums),
        );
        (loss, dx, d_input, da, db)
    };
    let (loss, dx, d_input, da, db) = run(rows.x);
    assert_eq!(bits(&loss), bits(&whole.loss));
    assert_eq!((bits(&da), bits(&db)), (bits(&whole.da), bits(&whole.db)));
    let sum: Vec<f32> = dx.iter().zip(&d_input).map(|(a, b)| a + b).collect();
    near("dx", &sum, &wide(&whole.dx), 1e-6);
    // Without an input the adapter adds nothing, and A has no gradient.
    let (.., da, _) = run(&[0.0; 20 * 32]);
    assert!(da.iter().all(|&da| da == 0.0));
}

#[test]
fn the_reference_has_the_gradient_of_its_loss() {
    let head = weight(Format::F32, 23, 7, 6);
    let job = Job {
        rank: 3,
        a: numbers(3 * 7, 1),
        b: numbers(3 * 23, 2),
        case: Case::new(head, 4, 1.0, 6),
        sizes: vec![4],
    };
    let (a, b, x) = (wide(&job.a), wide(&job.b), wide(&job.case.x));
    let made = job.wanted(&a, &b, &x);
    let total = |made: &Made| -> f64 {
        let coefficients = wide(&job.case.coefficients);
        made.loss
            .iter()
            .zip(coefficients)
            .map(|(loss, c)| c * loss)
            .sum()
    };
    check_gradient("x", &x, &made.dx, |x| total(&job.wanted(&a, &b, x)));
    check_gradient("a", &a, &made.da, |a| total(&job.wanted(a, &b, &x)));
    check_gradient("b", &b, &made.db, |b| total(&job.wanted(&a, b, &x)));
}
