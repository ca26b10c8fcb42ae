//! The `yaml envoy` blocks of docs/recipes.md and docs/budgets.md: a real Envoy accepts them, and a recipe's block
//! sends the keys of the recipe's rules.

use serde_json::Value;

use super::in_project;
use crate::support::envoy::{Bootstrap, Envoy, per_filter_route};
use crate::support::yaml;

/// A block of a page, with the section before it.
struct Block {
    section: String,
    rate_limits: Value,
}

fn blocks(page: &str) -> Vec<Block> {
    let text = std::fs::read_to_string(in_project(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
    let sections = text.split("\n## ");
    let block = |section: &str| {
        let (before, rest) = section.split_once("```yaml envoy\n")?;
        let (block, _) = rest.split_once("```").expect("a block ends");
        let rate_limits = yaml::parse(block)["rate_limits"].clone();
        Some(Block { section: before.to_owned(), rate_limits })
    };
    sections.filter_map(block).collect()
}

/// The `yaml envoy` blocks of a section.
pub(super) fn blocks_of(page: &str, heading: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(in_project(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
    let mut sections = text.split("\n## ");
    let section = sections.find(|section| section.starts_with(heading)).expect("the section");
    let blocks = section.split("```yaml envoy\n").skip(1);
    blocks.map(|rest| yaml::parse(rest.split("```").next().expect("a block ends"))).collect()
}

/// The keys of the entries that the actions send.
fn keys(rate_limits: &Value) -> Vec<&str> {
    let lists = rate_limits.as_array().expect("a list").iter();
    let actions = lists.flat_map(|limit| limit["actions"].as_array().expect("a list"));
    let keys = actions.map(|action| {
        let (kind, fields) = action.as_object().expect("a map").iter().next().expect("an action");
        fields["descriptor_key"].as_str().unwrap_or(kind)
    });
    keys.collect()
}

#[test]
fn envoy_accepts_the_blocks_of_the_pages() {
    let blocks: Vec<Block> = ["docs/recipes.md", "docs/budgets.md"].into_iter().flat_map(blocks).collect();
    assert!(blocks.len() >= 9, "{} blocks", blocks.len());
    let routes = blocks.into_iter().enumerate();
    let bootstrap = routes.fold(Bootstrap::new(9), |bootstrap, (number, block)| {
        bootstrap.route(per_filter_route(&format!("/{number}"), block.rate_limits))
    });
    // Nothing listens at the port of the limiter, and Envoy admits.
    assert_eq!(Envoy::start(&bootstrap).get("/0").status, 200);
}

#[test]
fn the_blocks_of_the_recipes_send_the_keys_of_their_rules() {
    let blocks = blocks("docs/recipes.md");
    assert!(blocks.len() >= 8, "{} blocks", blocks.len());
    for Block { section, rate_limits } in blocks {
        let link = section.split("(../examples/recipes/").nth(1).expect("a link to the rules");
        let (name, _) = link.split_once(')').expect("a link ends");
        let rules = std::fs::read_to_string(in_project("examples/recipes").join(name)).expect("a rule file");
        let keys = keys(&rate_limits);
        assert!(!keys.is_empty(), "{name}");
        for key in keys {
            assert!(
                rules.lines().any(|line| line.trim() == format!("- key: {key}")),
                "{name} has no key {key}"
            );
        }
    }
}
