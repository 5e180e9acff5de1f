//! [`Book`]: the lessons in memory, and what of them is to be written. Time comes in as a value.
use super::{
    MOST_ROWS,
    file::File,
    row::{Row, RowId},
};
use motorpool_pool::{Experience, Lesson, Lessons, News};
use std::{collections::BTreeMap, sync::Arc};

/// For so many seconds a death counts: an hour.
const DEATH_HOLDS: u64 = 60 * 60;

/// All lessons; of those with a file, that file holds the same.
#[derive(Debug)]
pub(super) struct Book {
    rows: BTreeMap<RowId, Row>,
    file: Option<File>,
    /// The next use is later than every one before.
    next_use: u64,
}

impl Book {
    /// What is in `file`. Without one, what is learned is known until the end of this process.
    pub(super) fn new(file: Option<(File, Vec<(RowId, Row)>)>) -> Self {
        let (file, rows) = file.map_or((None, vec![]), |(file, rows)| (Some(file), rows));
        let next_use = rows.iter().map(|(_, row)| row.used).max().map_or(0, |used| used.saturating_add(1));
        Self { rows: rows.into_iter().collect(), file, next_use }
    }

    /// What was taught of `about`, without deaths of long ago. Counts as a use.
    pub(super) fn lessons(&mut self, about: &Arc<str>, at: u64) -> Lessons {
        let used = self.number_use();
        let mut lessons = vec![];
        let own = self.rows.iter_mut().filter(|(id, _)| id.about == **about);
        for (id, row) in own {
            row.used = used;
            write(&mut self.file, |file| file.used(id, used));
            lessons.push(fresh(row, at));
        }
        Lessons { about: Arc::clone(about), lessons: lessons.into() }
    }

    /// Takes what a child taught.
    pub(super) fn learn(&mut self, about: &str, experience: &Experience, at: u64) {
        let used = self.number_use();
        let id = RowId::of(about, &experience.key);
        let new = || Row { lesson: Lesson::new(experience.key.clone()), died_at: 0, used };
        let row = self.rows.entry(id.clone()).or_insert_with(new);
        row.lesson.take(experience);
        row.used = used;
        if let News::Died(_) = experience.news {
            row.died_at = at;
        }
        write(&mut self.file, |file| file.put(&id, row));
        self.forget_the_oldest();
    }

    fn forget_the_oldest(&mut self) {
        while self.rows.len() > MOST_ROWS {
            let oldest = self.rows.iter().min_by_key(|(_, row)| row.used).map(|(id, _)| id.clone());
            let Some(oldest) = oldest else { return };
            self.rows.remove(&oldest);
            write(&mut self.file, |file| file.remove(&oldest));
        }
    }

    fn number_use(&mut self) -> u64 {
        let used = self.next_use;
        self.next_use = used.saturating_add(1);
        used
    }
}

fn fresh(row: &Row, at: u64) -> Lesson {
    let mut lesson = row.lesson.clone();
    // The other way round too: a clock that was set back would let it hold for as long as that was.
    if at.abs_diff(row.died_at) >= DEATH_HOLDS {
        lesson.died = None;
    }
    lesson
}

/// A file that cannot be written is done without from then on.
fn write(file: &mut Option<File>, what: impl FnOnce(&File) -> rusqlite::Result<()>) {
    let Some(open) = file else { return };
    if let Err(error) = what(open) {
        tracing::warn!(%error, "what loads teach is not kept any more, only until this process ends");
        *file = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_pool::{KvType, LaunchKey, LaunchPlan, Marks, Split};
    use motorpool_vocab::{Bytes, Spawn};

    fn experience(context_per_slot: u32, news: News) -> Experience {
        let plan = LaunchPlan { context_per_slot, slots: 1, kv: KvType::Q8 };
        let estimate = Marks { private: Some(Bytes::gib(1)), ..Marks::default() };
        Experience { key: LaunchKey { plan, split: Split::default() }, spawn: Spawn(1), estimate, news }
    }

    fn held() -> News {
        News::Saw(Marks { private: Some(Bytes::gib(1)), ..Marks::default() })
    }

    fn contexts(lessons: &Lessons) -> Vec<u32> {
        lessons.lessons.iter().map(|lesson| lesson.key.plan.context_per_slot).collect()
    }

    #[test]
    fn each_model_build_and_launch_has_its_own_lessons() {
        let mut book = Book::new(None);
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        book.learn(&a, &experience(1024, held()), 0);
        book.learn(&a, &experience(2048, held()), 0);
        book.learn(&b, &experience(4096, held()), 0);
        book.learn(&a, &experience(1024, held()), 0);
        assert_eq!(contexts(&book.lessons(&a, 0)), [1024, 2048]);
        assert_eq!(contexts(&book.lessons(&b, 0)), [4096]);
        assert_eq!(contexts(&book.lessons(&"ab".into(), 0)), [0; 0]);
    }

    #[test]
    fn the_ones_that_were_not_used_for_longest_are_forgotten() {
        let mut book = Book::new(None);
        let about = |n: usize| Arc::<str>::from(format!("model {n}"));
        for n in 0..MOST_ROWS {
            book.learn(&about(n), &experience(1024, held()), 0);
        }
        assert_eq!(contexts(&book.lessons(&about(0), 0)), [1024], "used");
        book.learn(&about(MOST_ROWS), &experience(1024, held()), 0);
        assert_eq!(book.rows.len(), MOST_ROWS);
        assert_eq!(contexts(&book.lessons(&about(0), 0)), [1024]);
        assert_eq!(contexts(&book.lessons(&about(1), 0)), [0; 0]);
    }

    #[test]
    fn what_a_death_said_holds_for_a_day() {
        let mut book = Book::new(None);
        let needed = Marks { private: Some(Bytes::gib(2)), ..Marks::default() };
        let about: Arc<str> = "a".into();
        book.learn(&about, &experience(1024, News::Died(needed)), 1000);
        let mut counts = |at| book.lessons(&about, at).lessons[0].died.is_some();
        assert!(counts(1000) && counts(1000 + DEATH_HOLDS - 1));
        assert!(!counts(1000 + DEATH_HOLDS));
    }

    #[test]
    fn what_a_death_said_does_not_hold_on_when_the_clock_is_set_back() {
        let mut book = Book::new(None);
        let needed = Marks { private: Some(Bytes::gib(2)), ..Marks::default() };
        let about: Arc<str> = "a".into();
        book.learn(&about, &experience(1024, News::Died(needed)), 10 * DEATH_HOLDS);
        let mut counts = |at| book.lessons(&about, at).lessons[0].died.is_some();
        assert!(counts(10 * DEATH_HOLDS - 5), "by seconds only");
        assert!(!counts(9 * DEATH_HOLDS) && !counts(0));
    }
}
