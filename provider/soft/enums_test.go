package soft

import (
	"reflect"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestEnumsAreEqual: the data path converts between these types without checks of the values.
func TestEnumsAreEqual(t *testing.T) {
	pairs := []struct {
		name             string
		verbs, transport uint64
	}{
		{"RC", uint64(verbs.QPTypeRC), uint64(transport.RC)},
		{"UC", uint64(verbs.QPTypeUC), uint64(transport.UC)},
		{"UD", uint64(verbs.QPTypeUD), uint64(transport.UD)},
		{"XRC_SEND", uint64(verbs.QPTypeXRCSend), uint64(transport.XRCSend)},
		{"XRC_RECV", uint64(verbs.QPTypeXRCRecv), uint64(transport.XRCRecv)},

		{"RESET", uint64(verbs.QPSReset), uint64(transport.Reset)},
		{"INIT", uint64(verbs.QPSInit), uint64(transport.Init)},
		{"RTR", uint64(verbs.QPSRTR), uint64(transport.RTR)},
		{"RTS", uint64(verbs.QPSRTS), uint64(transport.RTS)},
		{"SQD", uint64(verbs.QPSSQD), uint64(transport.SQD)},
		{"SQE", uint64(verbs.QPSSQE), uint64(transport.SQE)},
		{"ERR", uint64(verbs.QPSErr), uint64(transport.Err)},

		{"WRITE", uint64(verbs.WRRDMAWrite), uint64(transport.OpWrite)},
		{"WRITE_WITH_IMM", uint64(verbs.WRRDMAWriteWithImm), uint64(transport.OpWriteImm)},
		{"SEND", uint64(verbs.WRSend), uint64(transport.OpSend)},
		{"SEND_WITH_IMM", uint64(verbs.WRSendWithImm), uint64(transport.OpSendImm)},
		{"READ", uint64(verbs.WRRDMARead), uint64(transport.OpRead)},
		{"CMP_SWAP", uint64(verbs.WRAtomicCmpAndSwp), uint64(transport.OpCmpSwap)},
		{"FETCH_ADD", uint64(verbs.WRAtomicFetchAndAdd), uint64(transport.OpFetchAdd)},
		{"LOCAL_INV", uint64(verbs.WRLocalInv), uint64(transport.OpLocalInv)},
		{"BIND_MW", uint64(verbs.WRBindMW), uint64(transport.OpBindMW)},
		{"SEND_WITH_INV", uint64(verbs.WRSendWithInv), uint64(transport.OpSendInv)},

		{"FENCE", uint64(verbs.SendFence), uint64(transport.Fence)},
		{"SIGNALED", uint64(verbs.SendSignaled), uint64(transport.Signaled)},
		{"SOLICITED", uint64(verbs.SendSolicited), uint64(transport.Solicited)},
		{"INLINE", uint64(verbs.SendInline), uint64(transport.Inline)},

		{"TAG_ADD", uint64(verbs.TagAdd), uint64(transport.TagAdd)},
		{"TAG_DEL", uint64(verbs.TagDel), uint64(transport.TagDel)},
		{"TAG_SYNC", uint64(verbs.TagSync), uint64(transport.TagSync)},
		{"TM_ADD", uint64(verbs.WCTMAdd), uint64(transport.CQTMAdd)},
		{"TM_DEL", uint64(verbs.WCTMDel), uint64(transport.CQTMDel)},
		{"TM_SYNC", uint64(verbs.WCTMSync), uint64(transport.CQTMSync)},
		{"TM_RECV", uint64(verbs.WCTMRecv), uint64(transport.CQTMRecv)},
		{"TM_NO_TAG", uint64(verbs.WCTMNoTag), uint64(transport.CQTMNoTag)},
		{"TM_SYNC_REQ", uint64(verbs.WCTMSyncReq), uint64(transport.TMSyncReq)},
		{"TM_MATCH", uint64(verbs.WCTMMatch), uint64(transport.TMMatch)},
		{"TM_DATA_VALID", uint64(verbs.WCTMDataValid), uint64(transport.TMDataValid)},
		{"TM_ERR", uint64(verbs.WCTMErr), uint64(transport.TMErr)},
		{"TM_RNDV_INCOMPLETE", uint64(verbs.WCTMRndvIncomplete), uint64(transport.TMRndvIncomplete)},
		{"MIGRATED", uint64(verbs.MigMigrated), uint64(transport.Migrated)},
		{"REARM", uint64(verbs.MigRearm), uint64(transport.Rearm)},
		{"ARMED", uint64(verbs.MigArmed), uint64(transport.Armed)},
		{"PATH_MIG", uint64(verbs.EventPathMig), uint64(transport.EventPathMig)},
		{"PATH_MIG_ERR", uint64(verbs.EventPathMigErr), uint64(transport.EventPathMigErr)},

		{"SUCCESS", uint64(verbs.WCSuccess), uint64(transport.Success)},
		{"LOC_LEN_ERR", uint64(verbs.WCLocLenErr), uint64(transport.LocLenErr)},
		{"LOC_QP_OP_ERR", uint64(verbs.WCLocQPOpErr), uint64(transport.LocQPOpErr)},
		{"LOC_PROT_ERR", uint64(verbs.WCLocProtErr), uint64(transport.LocProtErr)},
		{"WR_FLUSH_ERR", uint64(verbs.WCWRFlushErr), uint64(transport.WRFlushErr)},
		{"MW_BIND_ERR", uint64(verbs.WCMWBindErr), uint64(transport.MWBindErr)},
		{"BAD_RESP_ERR", uint64(verbs.WCBadRespErr), uint64(transport.BadRespErr)},
		{"LOC_ACCESS_ERR", uint64(verbs.WCLocAccessErr), uint64(transport.LocAccessErr)},
		{"REM_INV_REQ_ERR", uint64(verbs.WCRemInvReqErr), uint64(transport.RemInvReqErr)},
		{"REM_ACCESS_ERR", uint64(verbs.WCRemAccessErr), uint64(transport.RemAccessErr)},
		{"REM_OP_ERR", uint64(verbs.WCRemOpErr), uint64(transport.RemOpErr)},
		{"RETRY_EXC_ERR", uint64(verbs.WCRetryExcErr), uint64(transport.RetryExcErr)},
		{"RNR_RETRY_EXC_ERR", uint64(verbs.WCRNRRetryExcErr), uint64(transport.RNRRetryExcErr)},
		{"REM_ABORT_ERR", uint64(verbs.WCRemAbortErr), uint64(transport.RemAbortErr)},
		{"FATAL_ERR", uint64(verbs.WCFatalErr), uint64(transport.FatalErr)},
		{"GENERAL_ERR", uint64(verbs.WCGeneralErr), uint64(transport.GeneralErr)},

		{"WC SEND", uint64(verbs.WCSend), uint64(transport.CQSend)},
		{"WC WRITE", uint64(verbs.WCRDMAWrite), uint64(transport.CQWrite)},
		{"WC READ", uint64(verbs.WCRDMARead), uint64(transport.CQRead)},
		{"WC COMP_SWAP", uint64(verbs.WCCompSwap), uint64(transport.CQCompSwap)},
		{"WC FETCH_ADD", uint64(verbs.WCFetchAdd), uint64(transport.CQFetchAdd)},
		{"WC BIND_MW", uint64(verbs.WCBindMW), uint64(transport.CQBindMW)},
		{"WC LOCAL_INV", uint64(verbs.WCLocalInv), uint64(transport.CQLocalInv)},
		{"WC RECV", uint64(verbs.WCRecv), uint64(transport.CQRecv)},
		{"WC RECV_RDMA_WITH_IMM", uint64(verbs.WCRecvRDMAWithImm), uint64(transport.CQRecvRDMAImm)},

		{"WC_GRH", uint64(verbs.WCGRH), uint64(transport.WithGRH)},
		{"WC_WITH_IMM", uint64(verbs.WCWithImm), uint64(transport.WithImm)},
		{"WC_WITH_INV", uint64(verbs.WCWithInv), uint64(transport.WithInv)},

		{"QP_FATAL", uint64(verbs.EventQPFatal), uint64(transport.EventQPFatal)},
		{"QP_REQ_ERR", uint64(verbs.EventQPReqErr), uint64(transport.EventQPReqErr)},
		{"QP_ACCESS_ERR", uint64(verbs.EventQPAccessErr), uint64(transport.EventQPAccessErr)},
		{"COMM_EST", uint64(verbs.EventCommEst), uint64(transport.EventCommEst)},
		{"SQ_DRAINED", uint64(verbs.EventSQDrained), uint64(transport.EventSQDrained)},
		{"SRQ_ERR", uint64(verbs.EventSRQErr), uint64(transport.EventSRQErr)},
		{"SRQ_LIMIT_REACHED", uint64(verbs.EventSRQLimitReached), uint64(transport.EventSRQLimitReached)},
		{"QP_LAST_WQE_REACHED", uint64(verbs.EventQPLastWQEReached), uint64(transport.EventQPLastWQEReached)},

		{"QP_STATE", uint64(verbs.QPAttrState), uint64(transport.MaskState)},
		{"QP_CUR_STATE", uint64(verbs.QPAttrCurState), uint64(transport.MaskCurState)},
		{"QP_EN_SQD_ASYNC_NOTIFY", uint64(verbs.QPAttrEnSQDAsyncNotify), uint64(transport.MaskSQDNotify)},
		{"QP_ACCESS_FLAGS", uint64(verbs.QPAttrAccessFlags), uint64(transport.MaskAccess)},
		{"QP_PKEY_INDEX", uint64(verbs.QPAttrPKeyIndex), uint64(transport.MaskPKeyIndex)},
		{"QP_PORT", uint64(verbs.QPAttrPort), uint64(transport.MaskPort)},
		{"QP_QKEY", uint64(verbs.QPAttrQKey), uint64(transport.MaskQKey)},
		{"QP_AV", uint64(verbs.QPAttrAV), uint64(transport.MaskAV)},
		{"QP_PATH_MTU", uint64(verbs.QPAttrPathMTU), uint64(transport.MaskPathMTU)},
		{"QP_TIMEOUT", uint64(verbs.QPAttrTimeout), uint64(transport.MaskTimeout)},
		{"QP_RETRY_CNT", uint64(verbs.QPAttrRetryCnt), uint64(transport.MaskRetryCnt)},
		{"QP_RNR_RETRY", uint64(verbs.QPAttrRNRRetry), uint64(transport.MaskRNRRetry)},
		{"QP_RQ_PSN", uint64(verbs.QPAttrRQPSN), uint64(transport.MaskRQPSN)},
		{"QP_MAX_QP_RD_ATOMIC", uint64(verbs.QPAttrMaxQPRdAtomic), uint64(transport.MaskMaxRdAtomic)},
		{"QP_ALT_PATH", uint64(verbs.QPAttrAltPath), uint64(transport.MaskAltPath)},
		{"QP_MIN_RNR_TIMER", uint64(verbs.QPAttrMinRNRTimer), uint64(transport.MaskMinRNRTimer)},
		{"QP_SQ_PSN", uint64(verbs.QPAttrSQPSN), uint64(transport.MaskSQPSN)},
		{"QP_MAX_DEST_RD_ATOMIC", uint64(verbs.QPAttrMaxDestRdAtomic), uint64(transport.MaskMaxDestRdAtom)},
		{"QP_DEST_QPN", uint64(verbs.QPAttrDestQPN), uint64(transport.MaskDestQPN)},

		{"LOCAL_WRITE", uint64(verbs.AccessLocalWrite), uint64(mr.LocalWrite)},
		{"REMOTE_WRITE", uint64(verbs.AccessRemoteWrite), uint64(mr.RemoteWrite)},
		{"REMOTE_READ", uint64(verbs.AccessRemoteRead), uint64(mr.RemoteRead)},
		{"REMOTE_ATOMIC", uint64(verbs.AccessRemoteAtomic), uint64(mr.RemoteAtomic)},
		{"MW_BIND", uint64(verbs.AccessMWBind), uint64(mr.MWBind)},
		{"ZERO_BASED", uint64(verbs.AccessZeroBased), uint64(mr.ZeroBased)},
	}
	for _, p := range pairs {
		if p.verbs != p.transport {
			t.Errorf("%s: %d in verbs, %d in transport", p.name, p.verbs, p.transport)
		}
	}
}

// TestSGELayout: the layouts of the two types are equal, as toSGEs requires.
func TestSGELayout(t *testing.T) {
	a, b := reflect.TypeFor[verbs.SGE](), reflect.TypeFor[transport.SGE]()
	if a.Size() != b.Size() || a.NumField() != b.NumField() {
		t.Fatalf("%v and %v differ", a, b)
	}
	for i := range a.NumField() {
		if f, g := a.Field(i), b.Field(i); f.Name != g.Name || f.Offset != g.Offset || f.Type != g.Type {
			t.Errorf("field %d: %v and %v", i, f, g)
		}
	}
}
