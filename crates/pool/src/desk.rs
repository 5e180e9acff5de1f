//! What operators do to queues: take a ticket out, move it in its lane.
use crate::{
    Answer, Direction, Pool, Refusal, RequestId,
    entry::{EntryId, Turn},
    queue::Queued,
};
use motorpool_vocab::{Lane, Now};

impl Pool {
    pub(crate) fn on_withdraw(&mut self, now: Now, id: RequestId, ticket: RequestId) {
        if self.tickets.contains_key(&ticket) {
            self.refuse(now, ticket, Refusal::Cancelled);
            self.reply(id, Answer::Requeued);
        } else {
            self.reply(id, Answer::NoTicket);
        }
    }

    pub(crate) fn on_move(&mut self, now: Now, id: RequestId, (ticket, direction): (RequestId, Direction)) {
        let answer = match self.tickets.get(&ticket).map(|t| (t.entry, t.ask.holder.lane)) {
            None => Answer::NoTicket,
            Some(place) => self.move_in_lane(now, place, (ticket, direction)),
        };
        self.reply(id, answer);
    }

    fn move_in_lane(
        &mut self,
        now: Now,
        (entry, lane): (EntryId, Lane),
        (ticket, direction): (RequestId, Direction),
    ) -> Answer {
        let order = self.lane_of(now, entry, lane);
        let Some(at) = order.iter().position(|queued| queued.id == ticket) else { return Answer::NoTicket };
        let upper = match direction {
            Direction::Up => at.checked_sub(1),
            Direction::Down => Some(at).filter(|at| at + 1 < order.len()),
        };
        let Some([first, second]) = upper.and_then(|upper| order.get(upper..upper + 2)) else {
            return Answer::AtTheEnd;
        };
        let (first, second) = (first.id, second.id);
        let before = [self.tickets[&first].turn, self.tickets[&second].turn];
        let numbers = before.map(|turn| turn.number);
        self.place(first, Turn { number: numbers[0].max(numbers[1]), placed: true });
        self.place(second, Turn { number: numbers[0].min(numbers[1]), placed: true });
        // Age goes before an operator's word: then nothing changes.
        let after = self.lane_of(now, entry, lane);
        let place_of = |id| after.iter().position(|queued| queued.id == id);
        if place_of(second) < place_of(first) {
            return Answer::Requeued;
        }
        self.place(first, before[0]);
        self.place(second, before[1]);
        Answer::AtTheEnd
    }

    fn lane_of(&self, now: Now, entry: EntryId, lane: Lane) -> Vec<Queued> {
        self.pending_in_order(now, entry).into_iter().filter(|queued| queued.lane == lane).collect()
    }

    fn place(&mut self, id: RequestId, turn: Turn) {
        if let Some(ticket) = self.tickets.get_mut(&id) {
            ticket.turn = turn;
        }
    }
}
