//! CSV files as billing systems write them: names of their own, more columns, limits and times.

use engine::ExceptionRow;

use super::*;

/// The columns of a file that names `value`, `tier`, `limit` and `until` in its own way, and no domain and key.
fn billing() -> CsvColumns {
    let column = |text: &str| text.parse().ok();
    CsvColumns([
        column("=shop"),
        column("=customer"),
        column("customer_id"),
        column("plan"),
        column("Contract"),
        None,
        column("ends"),
    ])
}

fn load_with(text: &str, columns: &CsvColumns, customer: &str) -> Result<Vec<ExceptionRow>, String> {
    let folder = Folder::new();
    folder.write("a.csv", text);
    let entries = [Entry { key: "customer".to_owned(), value: customer.to_owned() }];
    let scope = ExceptionScope { now_us: NOW_US, entries: Some(&entries), columns: Some(columns) };
    let loaded = load_exceptions(folder.path(), scope, &LoadedExceptions::default());
    let loaded = loaded.map_err(|problems| folder.told(&problems))?;
    Ok(loaded.exceptions.rows().cloned().collect())
}

#[test]
fn a_file_of_a_billing_system_is_read_by_its_own_columns() {
    const FILE: &str = "id;customer_id;name;plan;Contract;ends\n\
                        1;acme;Acme, Inc.;pro;;\n\
                        2;globex;Globex;;70000;\n\
                        3;initech;\"Initech; Ltd\";free;500;2026-12-01T00:00:00Z\n";
    let found = |customer: &str| {
        let rows = load_with(FILE, &billing(), customer).expect("a valid file");
        let [row] = rows.as_slice() else { panic!("{customer}: {rows:?}") };
        assert_eq!((row.terms.domain.clone(), &*row.terms.key), (Glob::new("shop"), "customer"));
        let line = row.source.to_string().rsplit(':').next().map(str::to_owned).unwrap_or_default();
        (
            line,
            row.terms.effect.tier.clone().unwrap_or_default().to_string(),
            row.terms.effect.limit,
            row.until_us,
        )
    };
    let until_us = Some(1_796_083_200_000_000);
    assert_eq!(found("acme"), ("2".to_owned(), "pro".to_owned(), None, None));
    assert_eq!(found("globex"), ("3".to_owned(), String::new(), Some(70_000), None));
    assert_eq!(found("initech"), ("4".to_owned(), "free".to_owned(), Some(500), until_us));
}

#[test]
fn rows_with_a_tier_alone_stay_small_beside_rows_with_a_limit() {
    let mut folder = Folder::new();
    folder.write(
        "a.csv",
        "domain,key,value,tier,limit,from,until\nd,k,a,pro,,,\nd,k,b,,5,2026-12-01T00:00:00Z,\n",
    );
    let loaded = folder.load().expect("a valid file");
    assert_eq!((loaded.exceptions.rows().count(), loaded.exceptions.table().len()), (1, 1));
    assert_eq!(loaded.files.iter().map(|file| file.rows).sum::<u64>(), 2);
}

#[test]
fn what_a_file_of_a_billing_system_lacks_is_named_as_the_settings_name_it() {
    for (text, expected) in [
        ("id,plan,Contract,ends\n", "a.csv:1: no column 'customer_id', which exceptions.columns.value names"),
        ("customer_id,customer_id,plan,Contract,ends\n", "a.csv:1: duplicate column 'customer_id'"),
        ("customer_id,plan,Contract,ends\nacme,,,\n", "a.csv:2: columns 'tier' and 'limit' are empty"),
        (
            "customer_id,plan,Contract,ends\nacme,,many,\n",
            "a.csv:2: 'limit' must be a whole number from 0 to 4503599627370496",
        ),
        (
            "customer_id,plan,Contract,ends\nacme,,4503599627370497,\n",
            "a.csv:2: 'limit' must be a whole number from 0 to 4503599627370496",
        ),
        (
            "customer_id,plan,Contract,ends\nacme,pro,,2026-12-01\n",
            "a.csv:2: 'until' must be a time with a UTC offset",
        ),
        ("customer_id,plan,Contract,ends\n,pro,,\n", "a.csv:2: column 'value' is empty"),
    ] {
        let told = load_with(text, &billing(), "acme").expect_err(text);
        assert!(told.starts_with(expected), "{told}");
    }
    let too_many: String = (0..=MAX_FULL_ROWS).map(|n| format!("c{n},,5,\n")).collect();
    let told = load_with(&format!("customer_id,plan,Contract,ends\n{too_many}"), &billing(), "c0");
    let expected =
        "a.csv:100002: all files together have more than 100000 rows; rows of CSV files with a tier alone";
    assert!(told.as_ref().is_err_and(|told| told.starts_with(expected)), "{told:?}");
}

#[test]
fn a_column_has_a_name_or_a_value_for_all_rows() {
    let parsed: [Result<CsvColumn, _>; 4] = ["plan", "=pro", "=", ""].map(str::parse);
    let [named, constant, no_value, empty] = parsed;
    assert_eq!(named, Ok(CsvColumn::Named("plan".to_owned())));
    assert_eq!(constant, Ok(CsvColumn::Constant("pro".to_owned())));
    assert_eq!((no_value, empty), (Err(CsvColumnError), Err(CsvColumnError)));
}
