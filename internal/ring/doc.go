// Package ring is a queue of records in memory that two processes share: one produces, one consumes, and neither
// has to trust the other.
//
// The producer owns the memory of the records. The consumer owns one word, the head: the position up to which it
// has finished. Each writes its own memory and only reads the other's. So a faulty peer can only write invalid
// values, which are detected and are an error of the ring (ErrCorrupt) for the reading side.
//
//	records  | word data... | word data...  | word skip | (start again)
//	         ^ head (consumer's)            ^ published       ^ tail (producer's)
//
// A record begins with a word that holds its length, kind and a small value; 0 means that there is no record yet.
// It starts at a cache line and never wraps around the end, which a record of kind skip fills. So a short record
// moves from one processor to the other in a single cache line, and the consumer polls only that line.
//
// Publish makes records visible, many at once: it writes their words first, that of the first record last.
//
// The package imports internal/prefetch. It maps no memory and wakes no process.
package ring
