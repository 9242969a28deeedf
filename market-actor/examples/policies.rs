//! scratch
use std::path::Path;
use market_actor::market::*; use market_actor::problem::*; use market_actor::problem::throughput::Throughput; use market_actor::problem::episode::*;
use market_actor::policy::*; use market_actor::policy::foresight::*; use market_actor::policy::horizon::*; use market_actor::policy::expectation::*; use market_actor::policy::net::Net;
use market_actor::backtest::run::episode; use market_actor::oracle::solve;
use shared::units::*;
fn days(y:i64,m:i64,d:i64)->i64{let y=if m<=2{y-1}else{y};let era=y.div_euclid(400);let yoe=y-era*400;let doy=(153*(m+(if m>2{-3}else{9}))+2)/5+d-1;let doe=yoe*365+yoe/4-yoe/100+doy;era*146097+doe-719468}
fn main(){
 let dir=std::env::args().nth(1).unwrap(); let off:i64=std::env::args().nth(2).map_or(0,|s|s.parse().unwrap()); let mode=std::env::args().nth(3).unwrap_or("start".into());
 let cap=std::fs::read_to_string(Path::new(&dir).join("skypilot-spot-traces/availability/16-node/aws-08-27-2023/us-west-2a_v100_1.json")).unwrap();
 let v:serde_json::Value=serde_json::from_str(&cap).unwrap();
 let a:Vec<u32>=v["data"].as_array().unwrap().iter().map(|x|x.as_u64().unwrap() as u32).collect();
 let csv=std::fs::read_to_string(Path::new(&dir).join("aws-spot-price-2015/g2.2xlarge-us-east-1e.csv")).unwrap();
 let rows:Vec<(i64,f64)>=csv.lines().skip(1).map(|l|{let t=&l[..19];let n=|a:usize,b:usize|t[a..b].parse::<i64>().unwrap();
   (days(n(0,4),n(5,7),n(8,10))*86400+n(11,13)*3600+n(14,16)*60+n(17,19), l.rsplit(',').next().unwrap().parse().unwrap())}).collect();
 let n=a.len()/6; let t0=rows[0].0+off*1800;
 let mut slots=vec![]; 
 for i in 0..n { let b=t0+1800*i as i64;
  let j=rows.partition_point(|r|r.0<=b)-1; let mut p=rows[j].1; 
  if mode=="max" { for r in &rows[j..] { if r.0>=b+1800 {break;} p=p.max(r.1);} }
  if mode=="mean" { let mut tot=0.0; let mut t=b; let mut k=j; while t<b+1800 { let e=rows.get(k+1).map_or(b+1800,|r|r.0).min(b+1800); tot+=rows[k].1*(e-t) as f64; t=e; k+=1;} p=tot/1800.0; }
  if let Ok(c)=mode.parse::<f64>(){p=c*0.65}
  slots.push(Slot{spot_price:MicroUsd((p/0.65*2e6).round() as u64),spot_available:*a[6*i..6*i+6].iter().min().unwrap(),on_demand_price:MicroUsd(2_000_000),on_demand_available:None}); }
 let m=Market{pool:Pool{provider:"c".into(),region:"".into(),zone:"".into(),machine:"".into()},start:Micros(0),slot:Micros(1_800_000_000),slots};
 println!("{n} price mean {:.3} dear {:.3}", m.slots.iter().map(|s|s.spot_price.0 as f64/2e6).sum::<f64>()/n as f64, m.slots.iter().filter(|s|s.spot_price.0>=2_000_000).count() as f64/n as f64);
 let quick=std::env::args().nth(4).is_some();
 for (name,h) in [("n",Throughput::per_machine(1.0)),("c",Throughput::Affine{alpha:0.72,beta:2.0})] { for load in [0.5,0.7] {
  let work=load*12.0*24.0; let p=Problem{work,soft_deadline:24,hard_deadline:36,fewest:1,most:12,throughput:h.clone(),reconfigure:Reconfigure{grow:0.9,shrink:0.95,..Default::default()},value:MicroUsd((1.5e6*work).round() as u64),reclaims:false};
  let starts:Vec<usize>=(240..=n-24).step_by(8).collect();
  let (mut opt,mut bound)=(0.0,0.0);
  for &s in &starts { let o=solve(&p,&Course::plain(&m,s),0.05); opt+=o.found.utility as f64; bound+=o.bound; }
  println!("== {name} {load} starts {} opt {:.2} gap {:.5}", starts.len(), opt/1e6/starts.len() as f64, (bound-opt)/opt);
  let perfect=Perfect{market:&m}; let ar=Autoregression{memory:240};
  let noisy=|e|Noisy{market:&m,error:e,size:16,seed:1};
  let (n3,n5,n10)=(noisy(0.3),noisy(0.5),noisy(1.0));
  let mut list:Vec<(String,Policy,&dyn Foresight)>=vec![("".into(),Policy::OnDemand,&perfect)];
  if !quick { 
  for pol in [Policy::Maximal{limit:1.0},Policy::Uniform{mixed:false},Policy::Uniform{mixed:true},Policy::BuyAhead{sigma:0.4},Policy::BuyAhead{sigma:0.7},Policy::Ross{seed:1},Policy::Expectation(Expectation::default())]{list.push(("".into(),pol,&perfect));}
  for (nm,f) in [("perfect",&perfect as &dyn Foresight),("n.3",&n3),("n.5",&n5),("n1",&n10),("pers",&Persistence),("ar",&ar)] { for pol in [Policy::Horizon(Horizon::track(6)),Policy::Horizon(Horizon::cost_to_go(6)),Policy::Horizon(Horizon::cost_to_go(12)),Policy::Horizon(Horizon::track(12))]{ list.push((nm.into(),pol,f)); } } }
  for (nm,pol,f) in &list { for net in [Net::Least,Net::FlatOut] {
   let (mut u,mut miss,mut rec)=(0.0,0,0); for &s in &starts { let o=episode(pol,&p,&Course::plain(&m,s),*f,Safety{net,margin:0}); u+=o.utility as f64; miss+=o.missed as u32; rec+=o.reconfigurations; }
   println!("{:28} {nm:8} {net:?} {:.3} miss {miss} rec {:.1}", pol.to_string(), u/opt, rec as f64/starts.len() as f64); } }
 }}
}
