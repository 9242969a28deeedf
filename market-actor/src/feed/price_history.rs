//! Answers of AWS DescribeSpotPriceHistory: the JSON that the command line prints, the XML of the query API.
//!
//! Both hold items with zone, type, product, price and time, newest first as a rule; several answers (pages) are read
//! one by one. Only `Linux/UNIX` rows count, the product that our nodes run; others are passed over.

use std::borrow::Cow;

use quick_xml::Reader;
use quick_xml::events::Event;
use serde::Deserialize;

use super::fault::{Faults, FeedError, RowFault, place};
use super::price_table::{Prices, finish, pool};
use super::{Observed, instant, money};

/// The product whose prices are kept.
const PRODUCT: &str = "Linux/UNIX";

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(rename = "SpotPriceHistory", borrow)]
    items: Vec<JsonItem<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct JsonItem<'a> {
    #[serde(borrow)]
    availability_zone: Cow<'a, str>,
    #[serde(borrow)]
    instance_type: Cow<'a, str>,
    #[serde(borrow)]
    product_description: Cow<'a, str>,
    #[serde(borrow)]
    spot_price: Cow<'a, str>,
    #[serde(borrow)]
    timestamp: Cow<'a, str>,
}

/// One price, with the byte where its price and its time stand.
#[derive(Default)]
struct Item<'a> {
    zone: Cow<'a, str>,
    machine: Cow<'a, str>,
    product: Cow<'a, str>,
    price: (usize, Cow<'a, str>),
    time: (usize, Cow<'a, str>),
}

/// Reads what `aws ec2 describe-spot-price-history` prints; one pool for each zone and type.
///
/// # Errors
/// Text that is no such JSON, prices and times that are none, no price of the product.
pub fn json(source_name: &str, text: &str) -> Result<Vec<Observed>, FeedError> {
    let mut faults = Faults::new(source_name);
    let answer: Answer<'_> = match serde_json::from_str(text) {
        Ok(answer) => answer,
        Err(error) => {
            faults.add(error.line(), error.column(), RowFault::Json(error));
            return Err(faults.or(()).expect_err("a fault was added"));
        }
    };
    let items = answer.items.into_iter().map(|item| Item {
        price: (byte_of(text, &item.spot_price), item.spot_price),
        time: (byte_of(text, &item.timestamp), item.timestamp),
        zone: item.availability_zone,
        machine: item.instance_type,
        product: item.product_description,
    });
    gather(source_name, text, items, faults)
}

/// Where a part of the text begins; its start for a part that was copied because it has escapes.
fn byte_of(text: &str, part: &str) -> usize {
    let offset = (part.as_ptr() as usize).checked_sub(text.as_ptr() as usize);
    offset.filter(|at| *at < text.len()).unwrap_or_default()
}

/// Reads the answer of the query API; one pool for each zone and type.
///
/// # Errors
/// Text that is no XML, prices and times that are none, no price of the product.
pub fn xml(source_name: &str, text: &str) -> Result<Vec<Observed>, FeedError> {
    let mut faults = Faults::new(source_name);
    let mut reader = Reader::from_str(text);
    let mut items: Vec<Item<'_>> = Vec::new();
    let mut element = Vec::new();
    loop {
        let begin = reader.buffer_position() as usize;
        match reader.read_event() {
            Err(error) => {
                let (line, column) = place(text, reader.error_position() as usize);
                faults.add(line, column, RowFault::Xml(error));
                break;
            }
            Ok(Event::Eof) => break,
            Ok(Event::Start(start)) => {
                element = start.name().as_ref().to_vec();
                if element == b"item" {
                    items.push(Item::default());
                }
            }
            Ok(Event::End(_)) => element.clear(),
            Ok(Event::Text(words)) => {
                let Some(item) = items.last_mut() else {
                    continue;
                };
                // Zones, types, prices and times have no characters that XML escapes.
                let words = String::from_utf8_lossy(&words).trim().to_owned();
                match element.as_slice() {
                    b"availabilityZone" => item.zone = words.into(),
                    b"instanceType" => item.machine = words.into(),
                    b"productDescription" => item.product = words.into(),
                    b"spotPrice" => item.price = (begin, words.into()),
                    b"timestamp" => item.time = (begin, words.into()),
                    _ => {}
                }
            }
            Ok(_) => {}
        }
    }
    gather(source_name, text, items.into_iter(), faults)
}

fn gather<'a>(
    source_name: &str,
    text: &str,
    items: impl Iterator<Item = Item<'a>>,
    mut faults: Faults<'_>,
) -> Result<Vec<Observed>, FeedError> {
    let mut prices = Prices::new();
    for item in items.filter(|item| item.product == PRODUCT) {
        let mut fault = |byte: usize, fault: RowFault| faults.add_at(text, || byte, || fault);
        let at = instant::parse(&item.time.1).map_err(|f| fault(item.time.0, f));
        let price = money::parse(&item.price.1).map_err(|f| fault(item.price.0, f));
        if let (Ok(at), Ok(price)) = (at, price) {
            let pool = pool(&item.zone, &item.machine);
            prices.entry(pool).or_default().push((at, price));
        }
    }
    finish(source_name, faults.or(prices)?)
}

#[cfg(test)]
mod tests {
    use shared::units::MicroUsd;

    use super::*;

    const JSON: &str = r#"{
    "SpotPriceHistory": [
        {
            "AvailabilityZone": "us-west-2b",
            "InstanceType": "p3.2xlarge",
            "ProductDescription": "Linux/UNIX",
            "SpotPrice": "0.918000",
            "Timestamp": "2023-04-22T10:00:01+00:00"
        },
        {
            "AvailabilityZone": "us-west-2b",
            "InstanceType": "p3.2xlarge",
            "ProductDescription": "Windows",
            "SpotPrice": "2.1",
            "Timestamp": "2023-04-22T09:00:01+00:00"
        },
        {
            "AvailabilityZone": "us-west-2b",
            "InstanceType": "p3.2xlarge",
            "ProductDescription": "Linux/UNIX",
            "SpotPrice": "0.925",
            "Timestamp": "2023-04-22T08:00:01Z"
        }
    ]
}"#;

    const XML: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<DescribeSpotPriceHistoryResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
  <requestId>00000000-0000-0000-0000-000000000000</requestId>
  <spotPriceHistorySet>
    <item>
      <instanceType>p3.2xlarge</instanceType>
      <productDescription>Linux/UNIX</productDescription>
      <spotPrice>0.918000</spotPrice>
      <timestamp>2023-04-22T10:00:01.000Z</timestamp>
      <availabilityZone>us-west-2b</availabilityZone>
    </item>
    <item>
      <instanceType>p3.2xlarge</instanceType>
      <productDescription>Linux/UNIX</productDescription>
      <spotPrice>0.925</spotPrice>
      <timestamp>2023-04-22T08:00:01.000Z</timestamp>
      <availabilityZone>us-west-2b</availabilityZone>
    </item>
  </spotPriceHistorySet>
  <nextToken/>
</DescribeSpotPriceHistoryResponse>"#;

    #[test]
    fn both_forms_say_the_same() {
        let pools = json("page", JSON).unwrap();
        assert_eq!(pools, xml("page", XML).unwrap());
        assert_eq!(pools.len(), 1);
        assert_eq!(pools[0].pool.region, "us-west-2");
        let prices = pools[0].spot_price.as_ref().unwrap();
        let values: Vec<MicroUsd> = prices.changes().iter().map(|(_, p)| *p).collect();
        assert_eq!(values, [MicroUsd(925_000), MicroUsd(918_000)]);
    }

    #[test]
    fn bad_prices_and_times_are_pointed_at() {
        let bad = JSON
            .replace("0.925", "cheap")
            .replace("2023-04-22T10", "2023-04-22T30");
        let message = json("page", &bad).unwrap_err().to_string();
        assert!(message.contains("line 8, column 27"), "{message}");
        assert!(
            message.contains("line 21, column 27: \"cheap\""),
            "{message}"
        );
        let bad = XML.replace("0.925", "cheap");
        let message = xml("page", &bad).unwrap_err().to_string();
        assert!(
            message.contains("line 15, column 18: \"cheap\""),
            "{message}"
        );
    }

    #[test]
    fn what_is_neither() {
        assert!(
            json("page", "{")
                .unwrap_err()
                .to_string()
                .contains("line 1")
        );
        let torn = XML.replace("</spotPriceHistorySet>", "</item>");
        assert!(matches!(xml("page", &torn), Err(FeedError::BadRows { .. })));
        assert!(matches!(
            json("page", r#"{"SpotPriceHistory": []}"#),
            Err(FeedError::Empty { .. })
        ));
    }
}
