package verbs

// CQExCreator is a ContextDriver that has extended CQs.
type CQExCreator interface {
	// CreateCQEx answers EOPNOTSUPP for fields and flags that the device lacks.
	CreateCQEx(init *CQExDriverInit, up CQUpcalls) (CQExDriver, error)
}

// CQExDriverInit is CQInitAttrEx in the driver's terms.
type CQExDriverInit struct {
	CQE        int
	CompVector int
	WCFlags    CreateCQWCFlags
	Flags      CreateCQFlags
}

// RawClock is a ContextDriver whose clock can be read at any time: the one of the raw timestamps of completions.
type RawClock interface {
	RawClock() (uint64, error)
}

// CQExDriver is an extended CQ.
type CQExDriver interface {
	CQDriver
	// PollOne takes the oldest completion into wc and tells whether there was one; more says that it follows a
	// call that found one, in the same batch. It sets all of wc that the CQ was made for. Calls of one CQ do not come at
	// once if the program keeps the rules. It may come after Destroy, from a goroutine that began before it.
	PollOne(wc *WCEx, more bool) (bool, error)
}

// QPExDriver is a QPDriver that posts lists of requests as one.
type QPExDriver interface {
	QPDriver
	// PostSendAll is PostSend, but posts all of wrs or nothing: with an error n is the index of the bad one. wrs is
	// not on a stack.
	PostSendAll(wrs []SendWR) (n int, err error)
}
