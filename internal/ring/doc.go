// Package ring is a queue of records in memory that two processes share: one produces, one consumes, and neither has to
// trust the other.
//
// The producer owns the memory of the records, the consumer that of one word, the head, up to which it has done with
// them. Each writes its own memory and only reads the other's, so what the other can do is to say nonsense; and
// nonsense is found out, and is an error of the ring (ErrCorrupt) for whoever reads it.
//
//	records  | word data... | word data...  | word skip | (start again)
//	         ^ head (consumer's)            ^ published       ^ tail (producer's)
//
// A record begins with a word that tells its length, kind and a small value; 0 means that there is none yet. It starts at
// a cache line and never wraps around the end, which a record of kind skip fills up. So a short record moves
// from one processor to the other in a single cache line, and the consumer waits at no other line than that.
//
// Records become visible by Publish, many at once: their words are written first, that of the first record last.
//
// The package imports the standard library only. It maps no memory and wakes nobody.
package ring
