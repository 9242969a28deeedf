//! scratch, not kept
#[path = "policies/traces.rs"] mod traces;
use market_actor::oracle::solve; use market_actor::problem::*; use market_actor::problem::throughput::Throughput; use market_actor::problem::episode::Course; use shared::units::MicroUsd; use std::path::Path;
fn main(){ let dir=std::env::args().nth(1).unwrap(); let d=Path::new(&dir);
 let cap=traces::capacity(&d.join("skypilot-spot-traces/availability/16-node/aws-08-27-2023/us-west-2a_v100_1.json")).unwrap();
 let n=cap.len(); let p6=d.join("aws-spot-price-2015/g2.2xlarge-us-east-1e.csv");
 let whole=traces::prices(&p6,0.65,0,8300).unwrap();
 let fine=traces::prices_fine(&p6,0.65).unwrap();
 for mode in 0..2 { for off in (0..8300-n).step_by(24).chain([148,149,150,784,941,1524,826,827,828,917,918]) {
  let price:Vec<f64>=if mode==0 {whole[off..off+n].to_vec()} else {(off..off+n).map(|s| fine.iter().skip(s*30).take(30).cloned().fold(0.0,f64::max)).collect()};
  let mean=price.iter().sum::<f64>()/n as f64; let dear=price.iter().filter(|p|**p>=1.0).count() as f64/n as f64;
  let late:&[f64]=&price[240..]; let m2=late.iter().sum::<f64>()/late.len() as f64; let d2=late.iter().filter(|p|**p>=1.0).count() as f64/late.len() as f64;
  let near=|m:f64,d:f64|(m-0.34).abs()<0.04&&(d-0.08).abs()<0.02; if !near(mean,dear)&&!near(m2,d2){continue;}
  let m=traces::market("x",&cap,&price); let mut out=format!("{mode} {off} mean {mean:.3} dear {dear:.3} / {m2:.3} {d2:.3}:");
  for (a,b,load,want) in [(1.0,0.0,0.5,136.4),(1.0,0.0,0.7,175.4),(0.72,2.0,0.5,141.8),(0.72,2.0,0.7,163.6)] {
   let work=load*288.0; let p=Problem{work,soft_deadline:24,hard_deadline:36,fewest:1,most:12,throughput:Throughput::Affine{alpha:a,beta:b},reconfigure:Reconfigure{grow:0.9,shrink:0.95,..Default::default()},value:MicroUsd((1.5e6*work) as u64),reclaims:false};
   let u:Vec<f64>=(240..=n-24).step_by(16).map(|s|solve(&p,&Course::plain(&m,s),0.1).found.utility as f64/1e6).collect();
   out+=&format!(" {:.1}({want})",u.iter().sum::<f64>()/u.len() as f64); }
  println!("{out}"); } } }
