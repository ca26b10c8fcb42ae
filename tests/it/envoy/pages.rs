//! The `yaml envoy` blocks of the recipes and of docs/budgets.md: a real Envoy accepts them, and a recipe's block sends
//! the keys of the recipe's rules.

use serde_json::Value;

use super::in_project;
use crate::support::envoy::{Bootstrap, Envoy, per_filter_route};
use crate::support::yaml;

/// The recipes that need a proxy.
const PROXIES: &str = "docs/recipes-proxies.md";
const RECIPES: [&str; 2] = ["docs/recipes.md", PROXIES];
/// The key of receipts, which is in no rule.
const RECEIPT: &str = "ratelimitd_receipt";

/// A block of a page, with the section before it.
struct Block {
    section: String,
    /// `rate_limits`, and perhaps `http_filters` and `request_headers_to_remove`.
    configuration: Value,
}

/// The blocks of this language, for the Envoy under test: one in a section.
fn blocks(page: &str, language: &str) -> Vec<Block> {
    let text = std::fs::read_to_string(in_project(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
    let sections = text.split("\n## ");
    let block = |section: &str| {
        let (before, rest) = section.split_once(&format!("```yaml {language}\n"))?;
        let (block, _) = rest.split_once("```").expect("a block ends");
        // A second is not enough on a busy machine.
        let block = block.replace("cluster_name: ratelimitd", "cluster_name: ratelimit");
        let configuration = yaml::parse(&block.replace("timeout: 1s", "timeout: 5s"));
        Some(Block { section: before.to_owned(), configuration })
    };
    sections.filter_map(block).collect()
}

/// The block of a recipe for proxies, by the title of its section.
pub fn recipe(title: &str, language: &str) -> Value {
    let mut found = blocks(PROXIES, language).into_iter().filter(|block| block.section.starts_with(title));
    found.next().unwrap_or_else(|| panic!("{PROXIES} has no block in the section {title}")).configuration
}

/// A route for every path with the rate limits of a recipe.
pub fn recipe_route(recipe: &Value) -> Value {
    let mut route = per_filter_route("/", recipe["rate_limits"].clone());
    if let Some(removed) = recipe.get("request_headers_to_remove") {
        route["request_headers_to_remove"] = removed.clone();
    }
    route
}

pub fn filters(recipe: &Value) -> Vec<Value> {
    recipe["http_filters"].as_array().expect("a list of filters").clone()
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
    keys.filter(|key| *key != RECEIPT).collect()
}

#[test]
fn envoy_accepts_the_blocks_of_the_pages() {
    let pages = RECIPES.into_iter().chain(["docs/budgets.md"]);
    let blocks: Vec<Block> = pages.flat_map(|page| blocks(page, "envoy")).collect();
    assert!(blocks.len() >= 16, "{} blocks", blocks.len());
    let routes = blocks.into_iter().enumerate();
    let bootstrap = routes.fold(Bootstrap::new(9), |bootstrap, (number, block)| {
        let rate_limits = block.configuration["rate_limits"].clone();
        bootstrap.route(per_filter_route(&format!("/{number}"), rate_limits))
    });
    // Nothing listens at the port of the limiter, and Envoy admits.
    assert_eq!(Envoy::start(&bootstrap).get("/0").status, 200);
}

#[test]
fn the_blocks_of_the_recipes_send_the_keys_of_their_rules() {
    let blocks: Vec<Block> = RECIPES.into_iter().flat_map(|page| blocks(page, "envoy")).collect();
    assert!(blocks.len() >= 15, "{} blocks", blocks.len());
    for Block { section, configuration } in blocks {
        let link = section.split("(../examples/recipes/").nth(1).expect("a link to the rules");
        let (name, _) = link.split_once(')').expect("a link ends");
        let rules = std::fs::read_to_string(in_project("examples/recipes").join(name)).expect("a rule file");
        let keys = keys(&configuration["rate_limits"]);
        assert!(!keys.is_empty(), "{name}");
        for key in keys {
            assert!(
                rules.lines().any(|line| line.trim() == format!("- key: {key}")),
                "{name} has no key {key}"
            );
        }
    }
}
