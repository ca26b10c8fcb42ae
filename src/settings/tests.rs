use super::*;

fn with(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let variables = variables
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()));
    Settings::from_layers(None, variables)
}

#[test]
fn every_default_is_valid() {
    assert_eq!(with(&[]).expect("the defaults are valid"), Settings::default());
    assert!(Settings::catalogue().len() > 25);
}
