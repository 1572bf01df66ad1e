package verbs

// TMSRQCreator is a PDDriver that has SRQs of type TM (TMCaps).
type TMSRQCreator interface {
	// CreateTMSRQ makes an SRQ whose completions, all of them, go to cq. The driver puts actual sizes in init and tm.
	CreateTMSRQ(cq CQDriver, init *SRQAttr, tm *TMCap, up SRQUpcalls) (TMSRQDriver, error)
}

// TMSRQDriver is an SRQ that matches tags.
type TMSRQDriver interface {
	SRQDriver
	// PostOps executes operations, sets the handles of those added, and returns how many it did; if err is not nil the
	// next one is the bad one.
	PostOps(ops []OpsWR) (int, error)
}
